// Thresholds without a neighbourhood: one level for the frame (fixed, Otsu, the triangle), and the difference to
// the running mean of the frames before.
//
//   level       mask is 255 if (I > level) != inverse; `begin_survey`, `take_histogram` and one of `find_otsu` and
//               `find_triangle` make the level of a frame
//   background  mask is 255 if (|I * 2^16 - B| > limit) != inverse, and then B becomes
//               (B * (2^31 - w) + I * 2^16 * w + 2^30) / 2^31, rounded down
//
// B has 16 fraction bits. w is 2^31 / min(n, most) for the n-th frame, rounded half up; the first frame is its own
// background. Otsu's level is the first with the greatest (S n - N s)^2 / (n (N - n)), n of N pixels and s of
// their sum S being up to it: the difference as an integer, the rest in f64. The triangle's is OpenCV's, in
// integers.
//
// Oracle: crates/lockon-core/src/reference/threshold.rs, in the tests of crates/lockon-cuda/src/threshold.rs.
#include "survey.cuh"
#include "window_sums.cuh"

// Sides of a block that compares, one pixel a thread: a warp is a row. Other heights were not measured.
constexpr int WHOLE_TILE_X = 32;
constexpr int WHOLE_TILE_Y = 8;

// Levels of luma, and threads of the kernels that have one for each.
constexpr int LEVELS = 256;

// Rows whose pixels a block counts. Other numbers were not measured.
constexpr int HISTOGRAM_ROWS = 8;

// Fraction bits of a background, and of the weight of a frame in it: the numeric contract's.
constexpr int BACKGROUND_BITS = 16;
constexpr int BACKGROUND_WEIGHT_BITS = 31;

// No pixels. One block of LEVELS threads.
extern "C" __global__ void begin_survey(Survey* survey) {
  survey->histogram[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    survey->greatest = 0;
    survey->least = 255;
    survey->level = 0;
  }
}

// Adds the frame's pixels to the histogram. Grid: height / HISTOGRAM_ROWS rounded up, block: LEVELS. Each warp has
// counters of its own, 8 KiB in all.
extern "C" __global__ void take_histogram(const unsigned char* pixels, int pitch, int width, int height,
                                          Survey* survey) {
  __shared__ unsigned counts[LEVELS / 32][LEVELS];
  for (int i = 0; i < LEVELS / 32; i++) counts[i][threadIdx.x] = 0;
  // Counters of all warps were cleared by all.
  __syncthreads();
  unsigned* own = counts[threadIdx.x / 32];
  const int first = blockIdx.x * HISTOGRAM_ROWS, last = min(first + HISTOGRAM_ROWS, height);
  for (int y = first; y < last; y++) {
    for (int x = threadIdx.x; x < width; x += LEVELS) atomicAdd(&own[pixels[size_t(y) * pitch + x]], 1u);
  }
  // A thread adds up what all warps counted.
  __syncthreads();
  unsigned count = 0;
  for (int i = 0; i < LEVELS / 32; i++) count += counts[i][threadIdx.x];
  if (count > 0) atomicAdd(&survey->histogram[threadIdx.x], count);
}

// The first thread with the greatest value. All LEVELS threads of a block call this together.
template <class T>
__device__ __forceinline__ int first_greatest(T value) {
  __shared__ T values[LEVELS];
  __shared__ int places[LEVELS];
  const int i = threadIdx.x;
  // Before that, all have read the answer of the call before.
  __syncthreads();
  values[i] = value;
  places[i] = i;
  for (int step = LEVELS / 2; step > 0; step /= 2) {
    // The values of the step before were written by other threads.
    __syncthreads();
    if (i < step) {
      const T other = values[i + step];
      // Those further on have greater places, but not those that won over nearer ones.
      if (other > values[i] || (other == values[i] && places[i + step] < places[i])) {
        values[i] = other;
        places[i] = places[i + step];
      }
    }
  }
  // Thread 0 made the answer.
  __syncthreads();
  return places[0];
}

// Makes the level of a histogram of up to 2^28 pixels. One block of LEVELS threads, a thread a level.
extern "C" __global__ void find_otsu(Survey* survey) {
  __shared__ unsigned long long counts[LEVELS], sums[LEVELS];
  const int i = threadIdx.x;
  counts[i] = survey->histogram[i];
  sums[i] = (unsigned long long)survey->histogram[i] * i;
  // Up to each level: sums of twice as many in each step.
  for (int step = 1; step < LEVELS; step *= 2) {
    __syncthreads();
    const unsigned long long count = i >= step ? counts[i - step] : 0, sum = i >= step ? sums[i - step] : 0;
    // All have read before one writes.
    __syncthreads();
    counts[i] += count;
    sums[i] += sum;
  }
  __syncthreads();
  const unsigned long long all = counts[LEVELS - 1], below = counts[i], above = all - below;
  double variance = 0.0;
  if (below > 0 && above > 0) {
    // The products may wrap; the difference is below 2^62.
    const double difference = double((long long)(sums[LEVELS - 1] * below - all * sums[i]));
    variance = difference * difference / (double(below) * double(above));
  }
  // Where no variance is above 0, it is the first level, 0.
  const int level = first_greatest(variance);
  if (i == 0) survey->level = level;
}

// The same for the triangle.
extern "C" __global__ void find_triangle(Survey* survey) {
  const int i = threadIdx.x;
  const long long count = survey->histogram[i];
  const int left = max(first_greatest(count > 0 ? 1 : 0) - 1, 0);
  const int mirrored = first_greatest(survey->histogram[LEVELS - 1 - i] > 0 ? 1 : 0);
  const int right = min(LEVELS - mirrored, LEVELS - 1);
  const int peak = first_greatest(count);
  const bool is_flipped = peak - left < right - peak;
  // From the foot to the peak; flipped, thread i has level 255 - i.
  const int foot = is_flipped ? LEVELS - 1 - right : left, top = is_flipped ? LEVELS - 1 - peak : peak;
  const long long highest = survey->histogram[peak];
  const long long here = survey->histogram[is_flipped ? LEVELS - 1 - i : i];
  const long long distance = foot < i && i <= top ? highest * i - (long long)(top - foot) * here : 0;
  const int furthest = first_greatest(distance);
  // No distance above 0 is that of the foot.
  const int level = (furthest > foot && furthest <= top ? furthest : foot) - 1;
  if (i == 0) survey->level = is_flipped ? LEVELS - 1 - level : level;
}

// Compares with a level. Block WHOLE_TILE_X x WHOLE_TILE_Y, grid (width / WHOLE_TILE_X, height / WHOLE_TILE_Y)
// rounded up.
extern "C" __global__ void compare_level(const unsigned char* pixels, int pitch, int width, int height,
                                         unsigned char* mask, unsigned long long* foreground, int inverse,
                                         const Survey* survey) {
  const int x = blockIdx.x * WHOLE_TILE_X + threadIdx.x, y = blockIdx.y * WHOLE_TILE_Y + threadIdx.y;
  bool is_foreground = false;
  if (x < width && y < height) {
    is_foreground = (int(pixels[size_t(y) * pitch + x]) > survey->level) != (inverse != 0);
    mask[size_t(y) * width + x] = is_foreground ? 255 : 0;
  }
  const int count = __syncthreads_count(is_foreground);
  if (threadIdx.x == 0 && threadIdx.y == 0 && count > 0) atomicAdd(foreground, (unsigned long long)count);
}

// Counts a frame of a background, up to the greatest number that makes a difference. One thread.
extern "C" __global__ void next_frame(unsigned* frames, int most) { *frames = min(*frames + 1, max(unsigned(most), 2u)); }

// Compares with the background, then adds the frame to it. Block and grid of `compare_level`. `few` is nothing, or
// where the mask of the limit `few_limit` goes; the counter is that of `mask`.
extern "C" __global__ void compare_background(const unsigned char* pixels, int pitch, int width, int height,
                                              unsigned char* mask, unsigned long long* foreground, int inverse,
                                              int limit, unsigned char* few, int few_limit, unsigned* means,
                                              const unsigned* frames, int most) {
  const int x = blockIdx.x * WHOLE_TILE_X + threadIdx.x, y = blockIdx.y * WHOLE_TILE_Y + threadIdx.y;
  bool is_foreground = false;
  if (x < width && y < height) {
    const size_t at = size_t(y) * width + x;
    const unsigned value = unsigned(pixels[size_t(y) * pitch + x]) << BACKGROUND_BITS;
    const unsigned n = *frames, mean = n == 1 ? value : means[at];
    const int difference = abs(int(value) - int(mean));
    is_foreground = (difference > limit) != (inverse != 0);
    mask[at] = is_foreground ? 255 : 0;
    if (few) few[at] = (difference > few_limit) != (inverse != 0) ? 255 : 0;
    constexpr unsigned ONE = 1u << BACKGROUND_WEIGHT_BITS;
    const unsigned k = min(n, unsigned(most)), weight = (ONE + k / 2) / k;
    // Both weights have up to 32 bits, value and mean 24.
    const unsigned long long sum =
        (unsigned long long)mean * (ONE - weight) + (unsigned long long)value * weight + ONE / 2;
    means[at] = unsigned(sum >> BACKGROUND_WEIGHT_BITS);
  }
  const int count = __syncthreads_count(is_foreground);
  if (threadIdx.x == 0 && threadIdx.y == 0 && count > 0) atomicAdd(foreground, (unsigned long long)count);
}
