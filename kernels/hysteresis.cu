// Hysteresis: of a mask the components, by 8 neighbours, that hold a white pixel of another mask.
//
//   begin_components   labels[i] is the first pixel of i's run, within 32 pixels of a row
//   join_components    labels of pixels that touch are joined: a root is the least of all that are
//   mark_components    holds[root] is 1 where a component holds a pixel of the other mask
//   choose_components  what is left of the mask, and the number of its pixels
//
// Pixels are counted along rows without padding. Union by atomic minimum after Y. Komura, "GPU-based
// cluster-labeling algorithm without the use of conventional iteration", 2015. Which root a component gets, and
// what it holds, depends on no order.
//
// One thread a pixel; a warp is 32 pixels of a row: block CHOICE_TILE_X x CHOICE_TILE_Y, grid (width /
// CHOICE_TILE_X, height / CHOICE_TILE_Y) rounded up.
//
// Oracle: crates/lockon-core/src/reference/threshold.rs, in the tests of crates/lockon-cuda/src/threshold.rs.
#include "window_sums.cuh"

// Sides of a block. Other heights were not measured.
constexpr int CHOICE_TILE_X = 32;
constexpr int CHOICE_TILE_Y = 8;

// The thread's pixel.
struct Place {
  int x, y;

  __device__ __forceinline__ Place()
      : x(blockIdx.x * CHOICE_TILE_X + threadIdx.x), y(blockIdx.y * CHOICE_TILE_Y + threadIdx.y) {}
  __device__ __forceinline__ bool is_inside(int width, int height) const { return x < width && y < height; }
};

// The root of a pixel by now, while others may be joining it.
__device__ __forceinline__ unsigned root_at(const volatile unsigned* labels, unsigned at) {
  for (;;) {
    const unsigned next = labels[at];
    if (next == at) return at;
    at = next;
  }
}

// Joins the components of two pixels.
__device__ __forceinline__ void unite(unsigned* labels, unsigned one, unsigned other) {
  for (;;) {
    one = root_at(labels, one);
    other = root_at(labels, other);
    if (one == other) return;
    const unsigned high = max(one, other), low = min(one, other);
    const unsigned before = atomicMin(&labels[high], low);
    if (before == high) return;
    // Another thread joined `high` in the meantime: what it was joined with belongs to `low` too.
    one = before;
    other = low;
  }
}

extern "C" __global__ void begin_components(const unsigned char* mask, int width, int height, unsigned* labels,
                                            unsigned char* holds) {
  const Place place;
  const bool is_inside = place.is_inside(width, height);
  const size_t at = size_t(place.y) * width + place.x;
  const bool is_white = is_inside && mask[at] != 0;
  const unsigned white = __ballot_sync(ALL_LANES, is_white);
  if (!is_inside) return;
  // The nearest black pixel to the left, within the warp: the run begins behind it.
  const int lane = threadIdx.x;
  const unsigned black_before = ~white & ((1u << lane) - 1);
  const int first = black_before == 0 ? 0 : 32 - __clz(black_before);
  labels[at] = unsigned(at) - (is_white ? lane - first : 0);
  holds[at] = 0;
}

extern "C" __global__ void join_components(const unsigned char* mask, int width, int height, unsigned* labels) {
  const Place place;
  if (!place.is_inside(width, height)) return;
  const auto is_white = [=](int x, int y) {
    return 0 <= x && x < width && 0 <= y && mask[size_t(y) * width + x] != 0;
  };
  const int x = place.x, y = place.y;
  if (!is_white(x, y)) return;
  const unsigned at = unsigned(y) * width + x;
  const bool has_left = is_white(x - 1, y);
  if (has_left && threadIdx.x == 0) unite(labels, at, at - 1);
  // A pixel beside this one joins what lies above itself.
  const bool above_left = is_white(x - 1, y - 1), above_right = is_white(x + 1, y - 1);
  if (is_white(x, y - 1)) {
    if (!(has_left && above_left)) unite(labels, at, at - width);
  } else {
    if (above_left && !has_left) unite(labels, at, at - width - 1);
    if (above_right && !is_white(x + 1, y)) unite(labels, at, at - width + 1);
  }
}

extern "C" __global__ void mark_components(const unsigned char* mask, const unsigned char* few, int width, int height,
                                           const unsigned* labels, unsigned char* holds) {
  const Place place;
  if (!place.is_inside(width, height)) return;
  const size_t at = size_t(place.y) * width + place.x;
  // All write the same.
  if (mask[at] != 0 && few[at] != 0) holds[root_at(labels, unsigned(at))] = 1;
}

extern "C" __global__ void choose_components(unsigned char* mask, unsigned long long* foreground, int width, int height,
                                             const unsigned* labels, const unsigned char* holds) {
  const Place place;
  bool is_chosen = false;
  if (place.is_inside(width, height)) {
    const size_t at = size_t(place.y) * width + place.x;
    if (mask[at] != 0) {
      is_chosen = holds[root_at(labels, unsigned(at))] != 0;
      mask[at] = is_chosen ? 255 : 0;
    }
  }
  const int count = __syncthreads_count(is_chosen);
  if (threadIdx.x == 0 && threadIdx.y == 0 && count > 0) atomicAdd(foreground, (unsigned long long)count);
}
