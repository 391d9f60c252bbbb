// Normalised cross-correlation of a region of a frame with one template:
//
//   score = (n ST - S t1) / sqrt((n SS - S S)(n t2 - t1 t1))
//
// with S = sum I, SS = sum I I and ST = sum I T over the n pixels of the window that count, t1 = sum T, t2 =
// sum T T. All sums are exact integers; the two differences and the numerator fit in 64 bits for n up to
// 2^22. Each is rounded to f64 once, and product, square root and division are rounded once each, as on the
// processor: the results are equal to the bit.
//
// A search takes four steps. Each runs over the region's positions: its width - w + 1 by its height -
// h + 1.
//
//   column_sums                    sums of I and I I down the h rows of every column
//   correlate_{texture, ...}       ST of every position, into the map
//   scores                         S and SS from the column sums, sliding; the map's ST becomes the score
//   peaks                          positions that beat their neighbours go to the list of candidates
//
// With a masked template neither S nor SS slides: correlate_..._masked sums all three and writes the score at
// once.
//
// The three correlations are those of N. Wilt, The CUDA Handbook, chapter 15, with exact integers in place of
// f32.
//
// Oracle: crates/lockon-core/src/reference/ncc.rs, in crates/lockon-cuda/src/tests.rs:
// scores_and_matches_of_2100_random_searches_are_those_of_the_definition.

#include "ncc.cuh"
#include "window_sums.cuh"

// The template of correlate_constant and correlate_shared: w * h pixels, then w * h zeros and ones if it has
// a mask. 64 KiB is all the constant memory there is, and the kernels' own constants need some.
constexpr int CONSTANT_BYTES = 65024;
__constant__ Pattern constant_pattern;
__constant__ unsigned char constant_pixels[CONSTANT_BYTES];

// Width of the tile that a block of correlate_shared computes, a warp's; its height is that of the block.
constexpr int TILE_WIDTH = 32;

// Sums over a window, row by row. Within a row 32 bits suffice: no frame is wider than 65536 pixels.
template <bool MASKED>
struct WindowSums {
  long long s = 0, ss = 0, st = 0;
  unsigned row_s = 0, row_ss = 0, row_st = 0;

  __device__ void add(unsigned image, unsigned pattern, unsigned counts) {
    row_st += image * pattern;
    if (MASKED) {
      row_s += image * counts;
      row_ss += image * image * counts;
    }
  }

  __device__ void end_row() {
    st += row_st;
    s += row_s;
    ss += row_ss;
    row_s = row_ss = row_st = 0;
  }

  // The map's value after the correlation.
  __device__ long long result(Pattern t) const { return MASKED ? __double_as_longlong(score(t, s, ss, st)) : st; }
};

// Image and template through textures; one thread a position. The template's mask lies to the right of its
// pixels.
template <bool MASKED>
__device__ void correlate_texture_(cudaTextureObject_t image, int left, int top, cudaTextureObject_t pixels, Pattern t,
                                   int width, int height, long long* map) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  WindowSums<MASKED> sums;
  for (int j = 0; j < t.h; j++) {
    for (int i = 0; i < t.w; i++) {
      sums.add(tex2D<unsigned char>(image, left + x + i, top + y + j), tex2D<unsigned char>(pixels, i, j),
               MASKED ? tex2D<unsigned char>(pixels, t.w + i, j) : 1);
    }
    sums.end_row();
  }
  map[size_t(y) * width + x] = sums.result(t);
}

// The template in constant memory, which broadcasts one pixel to all threads; the image through a texture.
template <bool MASKED>
__device__ void correlate_constant_(cudaTextureObject_t image, int left, int top, int width, int height, long long* map) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const Pattern t = constant_pattern;
  WindowSums<MASKED> sums;
  int index = 0;
  for (int j = 0; j < t.h; j++) {
    for (int i = 0; i < t.w; i++, index++) {
      sums.add(tex2D<unsigned char>(image, left + x + i, top + y + j), constant_pixels[index],
               MASKED ? constant_pixels[t.w * t.h + index] : 1);
    }
    sums.end_row();
  }
  map[size_t(y) * width + x] = sums.result(t);
}

// Bytes from row to row of a tile, for templates of width w.
__device__ __forceinline__ constexpr int tile_pitch(int w) { return (TILE_WIDTH + w + 63) / 64 * 64; }
static_assert(tile_pitch(1) == 64 && tile_pitch(32) == 64 && tile_pitch(33) == 128, "as `tile_bytes` of the host");

// The template in constant memory; the image's tile with a halo of w - 1 columns and h - 1 rows in shared
// memory.
//
// Rows of the tile lie (TILE_WIDTH + w) bytes apart, rounded up to whole 64: a warp is one row of 32
// positions, whose bytes lie in eight or nine neighbouring banks, whatever the template's width. Dynamic
// shared memory: that times (blockDim.y + h).
template <bool MASKED>
__device__ void correlate_shared_(cudaTextureObject_t image, int left, int top, int width, int height, long long* map) {
  extern __shared__ unsigned char tile[];
  const Pattern t = constant_pattern;
  const int pitch = tile_pitch(t.w);
  const int first_x = blockIdx.x * TILE_WIDTH, first_y = blockIdx.y * blockDim.y;
  for (int j = threadIdx.y; j < blockDim.y + t.h - 1; j += blockDim.y) {
    for (int i = threadIdx.x; i < TILE_WIDTH + t.w - 1; i += TILE_WIDTH) {
      // Past the frame the texture repeats its border; no position that counts reads that.
      tile[j * pitch + i] = tex2D<unsigned char>(image, left + first_x + i, top + first_y + j);
    }
  }
  __syncthreads();
  const int x = first_x + threadIdx.x, y = first_y + threadIdx.y;
  if (x >= width || y >= height) return;
  WindowSums<MASKED> sums;
  int index = 0;
  for (int j = 0; j < t.h; j++) {
    const unsigned char* row = tile + (threadIdx.y + j) * pitch + threadIdx.x;
    for (int i = 0; i < t.w; i++, index++) {
      sums.add(row[i], constant_pixels[index], MASKED ? constant_pixels[t.w * t.h + index] : 1);
    }
    sums.end_row();
  }
  map[size_t(y) * width + x] = sums.result(t);
}

extern "C" {

__global__ void correlate_texture(cudaTextureObject_t image, int left, int top, cudaTextureObject_t pixels, Pattern t,
                                  int width, int height, long long* map) {
  correlate_texture_<false>(image, left, top, pixels, t, width, height, map);
}

__global__ void correlate_texture_masked(cudaTextureObject_t image, int left, int top, cudaTextureObject_t pixels,
                                         Pattern t, int width, int height, long long* map) {
  correlate_texture_<true>(image, left, top, pixels, t, width, height, map);
}

__global__ void correlate_constant(cudaTextureObject_t image, int left, int top, int width, int height, long long* map) {
  correlate_constant_<false>(image, left, top, width, height, map);
}

__global__ void correlate_constant_masked(cudaTextureObject_t image, int left, int top, int width, int height,
                                          long long* map) {
  correlate_constant_<true>(image, left, top, width, height, map);
}

__global__ void correlate_shared(cudaTextureObject_t image, int left, int top, int width, int height, long long* map) {
  correlate_shared_<false>(image, left, top, width, height, map);
}

__global__ void correlate_shared_masked(cudaTextureObject_t image, int left, int top, int width, int height,
                                        long long* map) {
  correlate_shared_<true>(image, left, top, width, height, map);
}

// Sums of I and I I down h rows of every column of the region; see window_sums.cuh.
__global__ void column_sums(Image region, int h, int rows, unsigned* s, unsigned* ss) {
  sum_columns<16>(region, 0, h, rows, s, ss, region.width);
}

// Replaces ST in the map by the score. A warp slides along a segment of a row: block (32, rows).
__global__ void scores(const unsigned* s, const unsigned* ss, int columns, Pattern t, int width, int height,
                       long long* map) {
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (y >= height) return;
  const size_t row = size_t(y) * columns;
  long long* positions = map + size_t(y) * width;
  slide_along_row(s + row, ss + row, columns, 0, t.w, width, blockIdx.x * SEGMENT,
                  [=](int x, unsigned sum, unsigned long long squares) {
                    positions[x] = __double_as_longlong(score(t, sum, squares, positions[x]));
                  });
}

// Appends the positions that score min_score or more and precede their neighbours in the tie order: higher
// score, then smaller y, then smaller x. Candidates without room are counted too. One thread a position.
__global__ void peaks(const double* map, int width, int height, double min_score, unsigned tag, Candidate* candidates,
                      unsigned capacity, unsigned* count) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const double* here = map + size_t(y) * width + x;
  const double peak = *here;
  if (peak < min_score) return;
  const bool has_left = x > 0, has_right = x + 1 < width, has_above = y > 0, has_below = y + 1 < height;
  // Neighbours that come first in the tie order win a draw. There are no scores below -1.
  const double none = -2.0;
  const double left = has_left ? here[-1] : none, right = has_right ? here[1] : none;
  const double above = has_above ? here[-width] : none, below = has_below ? here[width] : none;
  if (left >= peak || above >= peak || right > peak || below > peak) return;
  if (has_above && has_left && here[-width - 1] >= peak) return;
  if (has_above && has_right && here[-width + 1] >= peak) return;
  if (has_below && has_left && here[width - 1] > peak) return;
  if (has_below && has_right && here[width + 1] > peak) return;
  const unsigned index = atomicAdd(count, 1);
  if (index < capacity) {
    candidates[index] = {tag, unsigned(x), unsigned(y), 0, peak, left, right, above, below};
  }
}

}  // extern "C"
