// target: compute_90a
//
// NCC of a region with one unmasked template on the tensor cores of compute capability 9.0: products, window sums and the
// search for what may be a peak in one launch; no score map is written. `settle` then computes the exact scores of the few
// suspects. Formulas and bounds: ncc_fast.cuh.
//
// Products. ST(x, y) = sum over i, j of T(i, j) I(x + i, y + j) becomes a product of matrices D = A B, 64 by N by 32 an
// instruction (`wgmma`, u8 with s32 sums), by letting the rows of D be 16 neighbouring x by 4 neighbouring y:
//
//   A[(dy, dx)][k] = T(k - dx, r - dy)        a band: row r - dy of the template, moved right by dx; zeros elsewhere
//   B[k][n]        = I(x_n + k, y_n + r)      32 of the image's pixels from (x_n, y_n + r) on
//   D[(dy, dx)][n] = ST(x_n + dx, y_n + dy)   summed over the image's rows r = 0 ... h + 2 and all k from 0 to w + 14
//
// A block computes a tile of 128 by up to 128 or 144 positions, all of whose sums stay in registers:
//
//        x_0   x_1             x_7                 n = 8 q + p:  x_n = 16 p,  y_n = 4 q  (of its warpgroup's rows)
//   y_0 +-----+-----+--   --+-----+ - - - - - +
//       |16x4 |     |  ...  |     |           :    the image's tile in shared memory, row by row:
//   y_8 +-----+-----+--   --+-----+           :    112 + 16 C pixels, C = (w + 15) / 16 rounded up,
//       |     |     |       |     |    halo   :    by the tile's rows + h - 1
//        ...                                  :
//       +-----+-----+--   --+-----+           :
//       :              halo                   :
//       + - - - - - - - - - - - - - - - - - - +
//
// B needs no rearranging: eight n with 16 bytes of k each, what the tensor cores read at a time (a core matrix), are 128
// bytes of one row of the tile; 4 rows lower lie the next eight n. The two halves of k are 16 columns of row r and the same
// columns of row r + 1, so whatever w is, at most 15 columns and one row are multiplied by zeros. To move on by two rows or
// by 16 columns is to change an address. A lies ready-made in global memory (`spread_template`): of each 16 columns k and
// each row of the template, the 16 bytes of k for each of the 16 dx. Four rows after each other are a whole A. Parts of it
// come through a ring in shared memory.
//
// Meanwhile other warps compute from the same tile b and W of each position (`sum_windows`, or `multiply_windows` where two
// more planes fit), which the warps that multiply then meet with their sums.
//
// Launch. Of the kernels ncc_wgmma_GxN (G warpgroups multiply, S = 11 warps sum, one fetches; TILE = G N / 2):
//
//   name     TILE  block  C         for
//   2x128     128    640  any       w <= 128, and what follows
//   3x96      144    768  any       where it saves a wave of blocks
//   3x96_2    144    768  at most 2, that is w <= 17
//   3x96_3    144    768  at most 3, that is w <= 33
//
//   tile_rows  a multiple of 8, at most TILE: the region's positions down, shared out evenly to the fewest blocks
//   grid       ((left % 16 + width) / 128, height / tile_rows), rounded up; width and height are numbers of positions
//   stages     of the ring: min(parts, 16, what shared memory has room for), at least 2 if there are two parts or more;
//              parts = C (steps / PART_STEPS rounded up), steps = (h + 4) / 2
//   shared     tile + stages * PART_BYTES + tile_rows * 1024 + scratch, with tile = (112 + 16 C)(tile_rows + h - 1),
//              three times that for 3x96_2 and _3, rounded up to 128; scratch = S * 2304, none for those two; at least
//              (112 + 16 C)(TILE + 2 steps). The device allows 227 KiB less 384 bytes
//   spread     C (2 steps + 3) 256 bytes, aligned to 16
//
// Limits: 1 <= w <= 128, h <= 256, w h <= 32768 (sums of products stay below 2^31, S below 2^23), not flat;
// frame.pixels and frame.pitch multiples of 16, pitch * height of the frame below 2^31, the region within the frame.
// What fits is decided by shared memory: 128 by 128 does with 2x128. `settle` is launched after it in the same stream.
#include "ncc_fast.cuh"

// Steps of a part, 32 products deep each, and bytes that it takes: two rows a step and three for the y-offsets.
#ifndef PART_STEPS
#define PART_STEPS 8
#endif
constexpr int PART_BYTES = (2 * PART_STEPS + 3) * 256;
constexpr int MAX_STAGES = 16;

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return unsigned(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier), "r"(parity)
      : "memory");
}

// Copies global memory to shared memory and lets `barrier` know.
__device__ __forceinline__ void bulk_copy(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// Copies 16 bytes, or fills with zeros.
__device__ __forceinline__ void copy_or_clear(unsigned to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}

// Describes an operand in shared memory without swizzle: core matrices of 8 rows of 16 bytes, `along_k` bytes from one to
// the next in K, `across` bytes in M or N.
__device__ __forceinline__ unsigned long long operand(unsigned address, unsigned along_k, unsigned across) {
  return (unsigned long long)(across >> 4) << 32 | (along_k >> 4) << 16 | address >> 4;
}

#define REGISTERS_4(d, i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define REGISTERS_8(d, i) REGISTERS_4(d, i), REGISTERS_4(d, i + 4)

// d += A B: 64 by 128 sums of 32 products.
__device__ __forceinline__ void multiply(int (&d)[64], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.u8.u8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1;"
      : REGISTERS_8(d, 0), REGISTERS_8(d, 8), REGISTERS_8(d, 16), REGISTERS_8(d, 24), REGISTERS_8(d, 32),
        REGISTERS_8(d, 40), REGISTERS_8(d, 48), REGISTERS_8(d, 56)
      : "l"(a), "l"(b));
}

// 64 by 96 sums.
__device__ __forceinline__ void multiply(int (&d)[48], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n96k32.s32.u8.u8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, %48, %49, 1;"
      : REGISTERS_8(d, 0), REGISTERS_8(d, 8), REGISTERS_8(d, 16), REGISTERS_8(d, 24), REGISTERS_8(d, 32),
        REGISTERS_8(d, 40)
      : "l"(a), "l"(b));
}

__device__ __forceinline__ Moments load_moments(unsigned address) {
  int base;
  float squared;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(base), "=f"(squared) : "r"(address) : "memory");
  return {base, squared};
}

__device__ __forceinline__ void store_moments(unsigned address, Moments m) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(m.base), "f"(m.squared) : "memory");
}

template <int PENDING>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// GROUPS warpgroups multiply, N columns of D each; SUM_WARPS warps sum, BANDS bands each, and one more fetches. Registers of
// a thread that multiplies and of the others, 0: as they come. CHUNKS: C, for which squares are multiplied too; 0: any.
template <int GROUPS, int N, int SUM_WARPS, int PRODUCT_REGISTERS, int OTHER_REGISTERS, int BANDS, int CHUNKS>
__device__ __forceinline__ void match(const Search& search, const uint4* spread, int stages, int tile_rows) {
  constexpr int PRODUCT_THREADS = GROUPS * 128, THREADS = PRODUCT_THREADS + SUM_WARPS * 32 + 32;
  constexpr int GROUP_ROWS = N / 2;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float warp_best[PRODUCT_THREADS / 32];
  __shared__ __align__(8) unsigned long long barriers[2 * MAX_STAGES];

  const Pattern& pattern = search.pattern;
  const int warp = __shfl_sync(ALL_LANES, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int chunks = (pattern.w + 30) / 16, steps = (pattern.h + 4) / 2;
  const int pitch = 112 + 16 * chunks, rows = tile_rows + pattern.h - 1;
  const int table_rows = 2 * steps + 3;
  const int parts = (steps + PART_STEPS - 1) / PART_STEPS;

  // The tile comes first: for what a group has beyond the tile's rows, the tensor cores read on in what follows it.
  unsigned char* tile = shared;
  unsigned char* ring = shared + (rows * pitch * (CHUNKS ? 3 : 1) + 127) / 128 * 128;
  Moments* sums = reinterpret_cast<Moments*>(ring + stages * PART_BYTES);
  Scratch* scratch = reinterpret_cast<Scratch*>(sums + tile_rows * TILE_X);
  const unsigned full = shared_address(barriers), empty = full + 8 * MAX_STAGES;

  // The tile begins at a multiple of 16 bytes: its first `offset` columns lie before the region.
  const int offset = search.left & 15;
  const int tile_x = blockIdx.x * TILE_X, tile_y = blockIdx.y * tile_rows;
  const bool is_producer = warp == PRODUCT_THREADS / 32 + SUM_WARPS;

  const auto fetch = [&](int part, int stage) {
    const int chunk = part / parts, first = part % parts * PART_STEPS;
    const int bytes = (2 * min(PART_STEPS, steps - first) + 3) * 256;
    bulk_copy(shared_address(ring + stage * PART_BYTES), spread + (chunk * table_rows + 2 * first) * 16, bytes,
              full + 8 * stage);
  };
  if (is_producer && lane == 0) {
    for (int stage = 0; stage < stages; stage++) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, PRODUCT_THREADS / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (int stage = 0; stage < min(stages, chunks * parts); stage++) fetch(stage, stage);
  }
  {
    const Image& frame = search.frame;
    const int chunk = lane % 16, byte = search.left - offset + tile_x + 16 * chunk;
    const int first_y = search.top + tile_y;
    const unsigned to = shared_address(tile) + 16 * chunk;
    const bool is_inside = byte < frame.pitch;
    if (chunk * 16 < pitch) {
#pragma unroll 4
      for (int row = warp * 2 + lane / 16; row < rows; row += THREADS / 16) {
        const bool is_there = is_inside && first_y + row < frame.height;
        copy_or_clear(to + row * pitch, is_there ? frame.pixels + size_t(first_y + row) * frame.pitch + byte : frame.pixels,
                      is_there);
      }
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  // What ordinary copies wrote is read by the tensor cores next.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();

  if (warp >= PRODUCT_THREADS / 32) {
    if constexpr (OTHER_REGISTERS != 0) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(OTHER_REGISTERS));
    if (is_producer) {
      if (lane == 0) {
        for (int part = stages; part < chunks * parts; part++) {
          const int stage = part % stages;
          barrier_wait(empty + 8 * stage, (part / stages - 1) & 1);
          fetch(part, stage);
        }
      }
    } else {
      const int band = warp - PRODUCT_THREADS / 32;
      const int first_x = offset - tile_x, end_x = search.width + first_x, end_y = search.height - tile_y;
      if constexpr (CHUNKS != 0) {
        square_pixels(tile, rows * pitch, threadIdx.x, PRODUCT_THREADS + SUM_WARPS * 32);
        asm volatile("barrier.cta.sync 5, %0;" ::"n"(PRODUCT_THREADS + SUM_WARPS * 32) : "memory");
        multiply_windows<CHUNKS, SUM_WARPS, 4>(tile, rows * pitch, pitch, search, tile_rows, band, first_x, end_x, end_y,
                                               sums);
      } else {
        sum_windows<SUM_WARPS, BANDS, 4>(tile, pitch, search, tile_rows, band, first_x, end_x, end_y,
                                         scratch + band * BANDS, sums);
      }
      asm volatile("barrier.cta.arrive 1, %0;" ::"n"(PRODUCT_THREADS + SUM_WARPS * 32) : "memory");
    }
  } else {
    if constexpr (PRODUCT_REGISTERS != 0) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(PRODUCT_REGISTERS));

    // Products. First a hand with the squares, which are wanted at once.
    if constexpr (CHUNKS != 0) {
      square_pixels(tile, rows * pitch, threadIdx.x, PRODUCT_THREADS + SUM_WARPS * 32);
      asm volatile("barrier.cta.arrive 5, %0;" ::"n"(PRODUCT_THREADS + SUM_WARPS * 32) : "memory");
    }
    const int group = warp / 4;
    int d[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++) d[i] = 0;
    {
      const unsigned rows_from = shared_address(tile) + group * GROUP_ROWS * pitch;
      unsigned stage = 0, parity = 0, previous = 0;
      for (int chunk = 0; chunk < chunks; chunk++) {
        unsigned long long b = operand(rows_from + 16 * chunk, pitch, 4 * pitch);
        for (int first = 0; first < steps; first += PART_STEPS) {
          unsigned long long a = operand(shared_address(ring) + stage * PART_BYTES, 256, 128);
          barrier_wait(full + 8 * stage, parity);
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
          const int count = min(PART_STEPS, steps - first);
#pragma unroll 2
          for (int step = 0; step < count; step++) {
            multiply(d, a, b);
            a += 512 >> 4;
            b += 2 * pitch >> 4;
          }
          asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
          // The part before this one is done with.
          wait_for_products<1>();
          if (first + chunk > 0 && lane == 0) barrier_arrive(empty + 8 * previous);
          previous = stage;
          if (++stage == stages) {
            stage = 0;
            parity ^= 1;
          }
        }
      }
    }
    const float best_before = from_ordered(*(volatile unsigned*)&search.suspicion->best);
    wait_for_products<0>();
#pragma unroll
    for (int i = 0; i < N / 2; i++) asm volatile("" : "+r"(d[i])::"memory");
    asm volatile("barrier.cta.sync 1, %0;" ::"n"(PRODUCT_THREADS + SUM_WARPS * 32) : "memory");

    // d[4j], d[4j + 1], d[4j + 2], d[4j + 3]: x, x + 16, x + 8, x + 24 of row 4j.
    const int x = lane % 4 * 32 + lane / 4, y = group * GROUP_ROWS + 3 - warp % 4;
    const unsigned mine[2] = {shared_address(sums + moments_slot(x, y)),
                              shared_address(sums + moments_slot(x + 8, y))};
    const auto address = [&](int i) {
      return mine[i / 2 % 2] + (i / 4 * 4 * TILE_X + i % 2 * 16) * unsigned(sizeof(Moments));
    };
    // Taken by eight, so that eight loads are on their way together: rows 8k and 8k + 4 of the group. Its rows beyond the
    // tile's have no moments; the tile's are a multiple of eight.
    const int eights = min(max(tile_rows - group * GROUP_ROWS, 0), GROUP_ROWS) / 8;
    const float floor = __fadd_rn(search.all_peaks ? search.min_score : fmaxf(search.min_score, best_before), -MARGIN);
    float best = -4.0f;
    // Bit i: d[i] is a suspect. Of suspects, the bound from above takes the place of W.
    constexpr int WORDS = (N / 2 + 31) / 32;
    unsigned suspects[WORDS] = {};
    if (!search.all_peaks && floor > 0.0f) {
      // Few scores reach that: (ST - b + 1)^2 is compared with floor^2 W before a root is taken.
      const float floor_squared = __fmul_rn(__fmul_rn(floor, floor), 1.0f - 1.0f / (1 << 18));
#pragma unroll
      for (int k = 0; k < N / 16; k++) {
        if (k >= eights) break;
        Moments m[8];
#pragma unroll
        for (int i = 0; i < 8; i++) m[i] = load_moments(address(8 * k + i));
#pragma unroll
        for (int i = 0; i < 8; i++) {
          int& e = d[8 * k + i];
          e -= m[i].base;
          const float more = __fadd_rn(float(e), 1.0f);
          const bool reaches = __fmul_rn(more, fabsf(more)) >= __fmul_rn(floor_squared, m[i].squared);
          suspects[k / 4] |= reaches ? 1u << (8 * k + i) % 32 : 0;
        }
      }
#pragma unroll
      for (int word = 0; word < WORDS; word++) {
        if (suspects[word] == 0) continue;
#pragma unroll
        for (int i = word * 32; i < min(word * 32 + 32, N / 2); i++) {
          if (suspects[word] >> i % 32 & 1) {
            const float r = inverse_root(load_moments(address(i)).squared), f = __fmul_rn(float(d[i]), r);
            best = fmaxf(best, __fadd_rn(f, -r));
            d[i] = __float_as_int(__fadd_rn(f, r));
          }
        }
      }
    } else {
#pragma unroll
      for (int k = 0; k < N / 16; k++) {
        if (k >= eights) break;
        Moments m[8];
#pragma unroll
        for (int i = 0; i < 8; i++) m[i] = load_moments(address(8 * k + i));
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const float r = inverse_root(m[i].squared), f = __fmul_rn(float(d[8 * k + i] - m[i].base), r);
          const float least = __fadd_rn(f, -r), bound = __fadd_rn(f, r);
          best = fmaxf(best, least);
          suspects[k / 4] |= bound >= floor ? 1u << (8 * k + i) % 32 : 0;
          d[8 * k + i] = __float_as_int(bound);
          // For the neighbours.
          store_moments(address(8 * k + i), {__float_as_int(least), bound});
        }
      }
    }
    if (!search.all_peaks) {
      const unsigned key = __reduce_max_sync(ALL_LANES, ordered(__fadd_rn(best, -MARGIN)));
      if (lane == 0) warp_best[warp] = from_ordered(key);
    }
    asm volatile("barrier.cta.sync 2, %0;" ::"n"(PRODUCT_THREADS) : "memory");
    if (search.all_peaks) {
      find_peaks<PRODUCT_THREADS / 32>(search, sums, tile_rows, tile_x - offset, tile_y, floor, warp);
      return;
    }
    best = warp_best[0];
#pragma unroll
    for (int i = 1; i < PRODUCT_THREADS / 32; i++) best = fmaxf(best, warp_best[i]);
    if (threadIdx.x == 0 && best > best_before) atomicMax(&search.suspicion->best, ordered(best));
    const float limit = fmaxf(floor, __fadd_rn(best, -MARGIN));
#pragma unroll
    for (int word = 0; word < WORDS; word++) {
      unsigned left = 0;
#pragma unroll
      for (int i = word * 32; i < min(word * 32 + 32, N / 2); i++) {
        left |= __int_as_float(d[i]) >= limit ? 1u << i % 32 : 0;
      }
      left &= suspects[word];
      if (left == 0) continue;
      // Few are left, and what is done for them must not be long, for it is fetched anew every time: their bounds go to
      // where any of them can be got from.
#pragma unroll
      for (int i = word * 32; i < min(word * 32 + 32, N / 2); i++) {
        if (left >> i % 32 & 1) asm volatile("st.shared.b32 [%0], %1;" ::"r"(address(i)), "r"(d[i]) : "memory");
      }
#pragma unroll 1
      for (; left; left &= left - 1) {
        const int i = word * 32 + __ffs(left) - 1, at_x = x + i / 2 % 2 * 8 + i % 2 * 16, at_y = y + i / 4 * 4;
        const float bound = __int_as_float(sums[moments_slot(at_x, at_y)].base);
        suspect(search, tile_x - offset + at_x, tile_y + at_y, __fadd_rn(bound, MARGIN));
      }
    }
  }
}

extern "C" {

#define MATCH(name, groups, n, sum_warps, product_registers, other_registers, bands, chunks) \
  __global__ void __launch_bounds__(128 * groups + 32 * sum_warps + 32, 1) ncc_wgmma_##name( \
      const __grid_constant__ Search search, const uint4* spread, int stages, int tile_rows) { \
    match<groups, n, sum_warps, product_registers, other_registers, bands, chunks>(search, spread, stages, tile_rows); \
  }

MATCH(2x128, 2, 128, 11, 120, 80, 1, 0)
MATCH(3x96, 3, 96, 11, 0, 0, 1, 0)
MATCH(3x96_2, 3, 96, 11, 0, 0, 1, 2)
MATCH(3x96_3, 3, 96, 11, 0, 0, 1, 3)

// A of all rows and columns, see above. One thread a byte of `spread`.
__global__ void spread_template(const unsigned char* pixels, int pitch, int w, int h, unsigned char* spread) {
  const int chunks = (w + 30) / 16, table_rows = 2 * ((h + 4) / 2) + 3;
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= chunks * table_rows * 256) return;
  const int k = index % 16, dx = index / 16 % 16, row = index / 256 % table_rows, chunk = index / 256 / table_rows;
  const int i = 16 * chunk + k - dx, j = row - 3;
  spread[index] = i >= 0 && i < w && j >= 0 && j < h ? pixels[j * pitch + i] : 0;
}

// The template's rows in words of four pixels, the last of each filled up with zeros. One thread a word.
__global__ void pack_template(const unsigned char* pixels, int pitch, int w, int h, unsigned* words) {
  const int columns = (w + 3) / 4, index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= columns * h) return;
  const int i = index % columns * 4, j = index / columns;
  unsigned word = 0;
  for (int k = 0; k < 4 && i + k < w; k++) word |= unsigned(pixels[j * pitch + i + k]) << 8 * k;
  words[index] = word;
}

// See `settle_suspects`.
__global__ void __launch_bounds__(SETTLE_THREADS) settle(const __grid_constant__ Search search, const unsigned* words,
                                                         double min_score, unsigned tag,
                                                         Candidate* candidates, unsigned capacity, unsigned* counts) {
  settle_suspects(search, words, min_score, tag, candidates, capacity, counts);
}

}  // extern "C"
