// target: compute_90a
//
// Products of a template without a mask, whatever its size, on the tensor cores of compute capability 9.0: ST
// of every position into a map, which the kernels of ncc.cu turn into scores and peaks. Products are those of
// ncc_wgmma.cu, whose top has matrices and tiles; but a block's pixels and its template come in pieces.
//
// A piece is up to PIECE_CHUNKS times 16 columns and PART_STEPS times two rows of the bands of the template,
// and what they meet of the image. Pieces are numbered down, then across. A block computes 128 by TILE
// positions, whose sums stay in registers, and has a share of the pieces, which follow each other:
//
//   fetches bands    |A|A|A|A|A|A|A|A| ...        a part (16 columns) at a time, into a ring of `stages`
//   fetches pixels   | piece | piece | ...        into two places by turns
//   multiply         |A|A|A|A|A|A|A|A| ...
//
// Launch. Of the kernels ncc_wgmma_map_N, TILE = N is the rows of positions of a tile:
//
//   grid       ((left % 16 + width) / 128, height / TILE, shares), rounded up
//   block      320: two warpgroups that multiply, a warp that fetches bands, one that fetches pixels
//   shared     stages * PART_BYTES + 2 pixels, stages from 2 to MAX_STAGES, where
//              pixels    (112 + 16 c)(TILE - 4 + 2 PART_STEPS), rounded up to 128, and c is the lesser of C
//                        and PIECE_CHUNKS
//   pieces     C / PIECE_CHUNKS times steps / PART_STEPS, each rounded up; C, steps and `spread` are those of
//              ncc_wgmma.cu
//
// With several shares, blocks add to the map, which is all zeros before. A share's sums stay below 2^32: it
// has MOST_PIXELS of the template at most.
//
// Oracle: that of ncc_wgmma.cu; each_kernel_at_the_edges_of_its_tiles_ncc_wgmma_map.
#include "launches.cuh"
#include "ncc_fast.cuh"
#include "wgmma.cuh"

// Columns of a piece, by 16. A template of up to 257 columns has no seam.
constexpr int PIECE_CHUNKS = 17;

// Parts that the ring has room for at most. Other numbers were not measured.
constexpr int MAX_STAGES = 16;

// 2^32 - 1 in units of 255 255, rounded down.
constexpr int MOST_PIXELS = 66051;
static_assert(255ll * 255 * MOST_PIXELS < 1ll << 32 && 255ll * 255 * (MOST_PIXELS + 1) >= 1ll << 32, "as much as fits");

constexpr int GROUPS = 2;
constexpr int MAP_THREADS = GROUPS * 128 + 64;

// Part of a template: from its chunk and step of these numbers on.
struct Piece {
  int chunk, chunks;
  int step, steps;
};

// The pieces of a template.
struct Pieces {
  int chunks, steps;  // of the template
  int across, down;

  __device__ __forceinline__ Pieces(int w, int h)
      : chunks((w + 30) / 16),
        steps((h + 4) / 2),
        across((chunks + PIECE_CHUNKS - 1) / PIECE_CHUNKS),
        down((steps + PART_STEPS - 1) / PART_STEPS) {}

  __device__ __forceinline__ Piece operator[](int number) const {
    const int column = number / down, row = number - column * down;
    const int chunk = column * PIECE_CHUNKS, step = row * PART_STEPS;
    return {chunk, min(PIECE_CHUNKS, chunks - chunk), step, min(PART_STEPS, steps - step)};
  }
};

// A place of a ring, and the parity of its barriers in this round.
struct Stage {
  int number = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void advance(int stages) {
    if (++number == stages) {
      number = 0;
      parity ^= 1;
    }
  }
};

// Rings in shared memory, of bands and of pixels; of each place a barrier that says that it is full, and one
// that it is empty. A thread that fills a place waits until the round before is used up, which is true at once
// in the first round.
struct Rings {
  unsigned full, empty;                // of bands
  unsigned full_pixels, empty_pixels;  // of the two places for pixels

  __device__ __forceinline__ explicit Rings(const unsigned long long* barriers)
      : full(shared_address(barriers)),
        empty(full + 8 * MAX_STAGES),
        full_pixels(empty + 8 * MAX_STAGES),
        empty_pixels(full_pixels + 8 * 2) {}

  // By one thread.
  __device__ __forceinline__ void begin(int stages) const {
    for (int stage = 0; stage < stages; stage++) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, GROUPS * 4);
    }
    for (int place = 0; place < 2; place++) {
      barrier_init(full_pixels + 8 * place, 1);
      barrier_init(empty_pixels + 8 * place, GROUPS * 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
};

// Fetches the bands of pieces first <= number < end. By one thread.
__device__ __forceinline__ void fetch_bands(const Pieces& pieces, int first, int end, const unsigned char* spread,
                                            const Rings& rings, unsigned parts, int stages) {
  Stage stage;
  for (int number = first; number < end; number++) {
    const Piece piece = pieces[number];
    const unsigned bytes = (2 * piece.steps + 3) * 256;
    for (int chunk = 0; chunk < piece.chunks; chunk++) {
      const size_t row = size_t(piece.chunk + chunk) * (2 * pieces.steps + 3) + 2 * piece.step;
      const unsigned full = rings.full + 8 * stage.number;
      barrier_wait(rings.empty + 8 * stage.number, stage.parity ^ 1);
      barrier_expect(full, bytes);
      bulk_copy(parts + stage.number * PART_BYTES, spread + row * 256, bytes, full);
      stage.advance(stages);
    }
  }
}

// Fetches the pixels that they meet. By one warp. x, y: the tile's first position in the frame, x a multiple
// of 16. What lies outside the frame is left as it is: no position that counts reads that, or it meets zeros.
__device__ __forceinline__ void fetch_pixels(const Pieces& pieces, int first, int end, const Image& frame, int x, int y,
                                             int tile_rows, const Rings& rings, unsigned pixels, int pixels_bytes, int pitch) {
  const int lane = threadIdx.x % 32;
  Stage place;
  for (int number = first; number < end; number++) {
    const Piece piece = pieces[number];
    const unsigned full = rings.full_pixels + 8 * place.number, to = pixels + place.number * pixels_bytes;
    const int byte = x + 16 * piece.chunk, rows = tile_rows - 4 + 2 * piece.steps;
    const int bytes = min(max(frame.pitch - byte, 0), 112 + 16 * piece.chunks);
    barrier_wait(rings.empty_pixels + 8 * place.number, place.parity ^ 1);
    if (lane == 0) barrier_expect(full, rows * bytes);
    __syncwarp();
    for (int row = lane; row < rows && bytes > 0; row += 32) {
      const int from = min(y + 2 * piece.step + row, frame.height - 1);
      bulk_copy(to + row * pitch, frame.pixels + size_t(from) * frame.pitch + byte, bytes, full);
    }
    place.advance(2);
  }
}

template <int N>
__device__ __forceinline__ void sum_products(const Region& region, const unsigned char* spread, int shares, int stages,
                                             unsigned long long* map) {
  constexpr int TILE = GROUPS * N / 2;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ __align__(8) unsigned long long barriers[2 * MAX_STAGES + 4];
  let_next_begin();
  const int warp = __shfl_sync(ALL_LANES, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const Pieces pieces(region.w, region.h);
  const long long count = pieces.across * pieces.down;
  const int first = int(count * blockIdx.z / shares), end = int(count * (blockIdx.z + 1) / shares);
  const int pitch = 112 + 16 * min(pieces.chunks, PIECE_CHUNKS);
  const int pixels_bytes = (pitch * (TILE - 4 + 2 * PART_STEPS) + 127) / 128 * 128;
  const int offset = region.left & 15, tile_x = int(blockIdx.x) * TILE_X - offset, tile_y = blockIdx.y * TILE;
  const unsigned parts = shared_address(shared), pixels = parts + stages * PART_BYTES;
  const Rings rings(barriers);
  if (threadIdx.x == 0) rings.begin(stages);
  __syncthreads();

  if (warp == GROUPS * 4) {
    if (lane == 0) fetch_bands(pieces, first, end, spread, rings, parts, stages);
    return;
  }
  if (warp == GROUPS * 4 + 1) {
    fetch_pixels(pieces, first, end, region.frame, region.left + tile_x, region.top + tile_y, TILE, rings, pixels,
                 pixels_bytes, pitch);
    return;
  }
  const int group = warp / 4;
  int d[N / 2];
  // ptxas must not know that these are zeros: it would set known ones again in the loop, and make each product
  // wait for the one before.
#pragma unroll
  for (int i = 0; i < N / 2; i++) asm volatile("mov.u32 %0, 0;" : "=r"(d[i]));
  Stage stage, place;
  unsigned before = 0;
  for (int number = first; number < end; number++) {
    const Piece piece = pieces[number];
    const unsigned rows_from = pixels + place.number * pixels_bytes + group * (N / 2) * pitch;
    barrier_wait(rings.full_pixels + 8 * place.number, place.parity);
    for (int chunk = 0; chunk < piece.chunks; chunk++) {
      const unsigned long long a = operand(parts + stage.number * PART_BYTES, 256, 128);
      unsigned long long b = operand(rows_from + 16 * chunk, pitch, 4 * pitch);
      barrier_wait(rings.full + 8 * stage.number, stage.parity);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      multiply_part(d, a, b, pitch, piece.steps);
      // The part before this one is free, and of a piece's first the piece before.
      wait_for_products<1>();
      if (lane == 0 && number + chunk > first) {
        barrier_arrive(rings.empty + 8 * before);
        if (chunk == 0) barrier_arrive(rings.empty_pixels + 8 * (place.number ^ 1));
      }
      before = stage.number;
      stage.advance(stages);
    }
    place.advance(2);
  }
  wait_for_all_products<N>(d);
  wait_for_launches_before();
  const Place mine = {lane % 4 * 32 + lane / 4, group * (N / 2) + 3 - warp % 4};
#pragma unroll
  for (int i = 0; i < N / 2; i++) {
    const int x = tile_x + mine.x_of(i), y = tile_y + mine.y_of(i);
    if (x < 0 || x >= region.width || y >= region.height) continue;
    unsigned long long* at = map + size_t(y) * region.width + x;
    const unsigned long long sum = unsigned(d[i]);
    if (shares == 1) {
      *at = sum;
    } else {
      atomicAdd(at, sum);
    }
  }
}

extern "C" {

// `column_sums` of ncc.cu, beside which the products begin: they take the multiprocessors' tensor cores,
// these sums what is left.
__global__ void column_sums(Image region, int h, int rows, unsigned* s, unsigned* ss) {
  let_next_begin();
  sum_columns<16>(region, 0, h, rows, s, ss, region.width);
}

#define SUM_PRODUCTS(n)                                                                                              \
  __global__ void __launch_bounds__(MAP_THREADS, 1)                                                                  \
      ncc_wgmma_map_##n(const __grid_constant__ Region region, const unsigned char* spread, int shares, int stages, \
                        unsigned long long* map) {                                                                   \
    sum_products<n>(region, spread, shares, stages, map);                                                            \
  }

SUM_PRODUCTS(128)
SUM_PRODUCTS(96)
SUM_PRODUCTS(32)

}  // extern "C"
