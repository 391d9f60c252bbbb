// target: compute_90a
//
// NCC of regions with unmasked templates on the tensor cores of compute capability 9.0. One launch computes
// products, window sums, the positions that may be the best one, or a peak, and their exact scores; no score
// map is written. Formulas: ncc_fast.cuh; bounds, window sums and exact scores: ncc_wgmma.cuh; all peaks:
// ncc_peaks.cuh.
//
// Products. ST(x, y) = sum over i, j of T(i, j) I(x + i, y + j) becomes a product of matrices D = A B, 64 by
// N by 32 an instruction (`wgmma`, u8 with s32 sums), by letting the rows of D be 16 neighbouring x by 4
// neighbouring y:
//
//   A[(dy, dx)][k] = T(k - dx, r - dy)       a band: row r - dy of the template moved right by dx; else 0
//   B[k][n]        = I(x_n + k, y_n + r)     32 of the image's pixels from (x_n, y_n + r) on
//   D[(dy, dx)][n] = ST(x_n + dx, y_n + dy)  summed over the image's rows r = 0 ... h + 2, k = 0 ... w + 14
//
// A block computes a tile of 128 by up to TILE positions, all of whose sums stay in registers:
//
//        x_0   x_1             x_7                 n = 8 q + p: x_n = 16 p, y_n = 4 q (of its warpgroup)
//   y_0 +-----+-----+--   --+-----+ - - - - - +
//       |16x4 |     |  ...  |     |           :    the image's tile in shared memory, row by row:
//   y_8 +-----+-----+--   --+-----+           :    112 + 16 C pixels, C = (w + 15) / 16 rounded up,
//       |     |     |       |     |    halo   :    by the tile's rows + h - 1
//        ...                                  :
//       +-----+-----+--   --+-----+           :
//       :              halo                   :
//       + - - - - - - - - - - - - - - - - - - +
//
// B needs no rearranging: eight n with 16 bytes of k each, what the tensor cores read at a time (a core
// matrix), are 128 bytes of one row of the tile; 4 rows lower lie the next eight n. The two halves of k are
// 16 columns of row r and the same columns of row r + 1, so whatever w is, at most 15 columns and one row are
// multiplied by zeros. To move on by two rows or by 16 columns is to change an address. A lies ready-made in
// global memory (`spread_template`): of each 16 columns k and each row of the template, the 16 bytes of k for
// each of the 16 dx. Four rows after each other are a whole A. Parts of it come through a ring in shared
// memory.
//
// Roles of a block's warps. G warpgroups multiply, each a part of the tile's rows. Eleven warps first sum
// windows (`sum_windows`), then score the warpgroups' suspects exactly (`settle_lists`). One fetches A. A
// block searches all templates of its search one after the other; tile and window sums serve all of them.
//
//   fetches     |A|A|A|A|A| ...
//   multiply    tile |  products  | epilogue |  products of the next template ...
//   sum         tile | sums |  wait          | settle |  wait ...
//
// Where all peaks are wanted, a search has one template. The products take the place of image and template in
// shared memory, and all warps look for peaks among them (`report_peaks`).
//
// Launch. Of the kernels ncc_wgmma_GxN, and ncc_wgmma_GxN_peaks for all peaks, TILE = G N / 2 is the most
// positions of a tile down:
//
//   name       2x128: TILE 128, 640 threads; 3x96: TILE 144, 768 threads; and for few positions, to keep more
//              of the multiprocessors busy, 2x80: TILE 80, 640 threads; 1x32: TILE 16, 512 threads
//   grid       all searches' blocks, one search after the other; tile_rows is a multiple of 8, at most TILE.
//              A tile begins TILE_X columns and tile_rows rows after the one before, for all peaks
//              PEAKS_OVERLAP less
//   shared     tile + stages * PART_BYTES + tile_rows * 1024 + starts
//              tile      (112 + 16 C)(tile_rows + h - 1), rounded up to 128
//              stages    2 at least, or 1 if there is one part only
//              starts    tile_rows * 8, rounded up to 128
//              At least (112 + 16 C)(TILE + 2 steps); for all peaks at least tile_rows * 1536 + starts too.
//              All searches have what the largest takes.
//   parts      C (steps / PART_STEPS rounded up) for each template, steps = (h + 4) / 2
//   spread     C (2 steps + 3) 256 bytes, aligned to 16
//
// Limits: 1 <= w <= 128, h <= 256, w h <= 32768 (sums of products, with what they begin at, stay below 2^31,
// S below 2^23), not flat; frame.pixels and frame.pitch multiples of 16, regions within the frame. Shared
// memory decides which templates fit: up to 128 by 128 with 2x128, all with 1x32.
//
// Oracle: crates/lockon-core/src/reference/ncc.rs, in crates/lockon-cuda/src/tests.rs:
// scores_and_matches_of_2100_random_searches_are_those_of_the_definition
// and each_kernel_at_the_edges_of_its_tiles_ncc_wgmma.
#include "launches.cuh"
#include "ncc_peaks.cuh"
#include "ncc_wgmma.cuh"

// Parts that the ring has room for at most. Other numbers were not measured.
constexpr int MAX_STAGES = 16;

// Numbers of named barriers: of a warpgroup, whose own number is added; of all warpgroups, where all peaks
// are wanted.
constexpr int GROUP_BARRIER = 1;
constexpr int DONE_BARRIER = 1;

// If more positions of a warp than these are suspects, the best lower bound of all is found first. Other
// numbers were not measured.
constexpr int FEW_SUSPECTS = 4;

// Copies 16 bytes, or fills with zeros.
__device__ __forceinline__ void copy_or_clear(unsigned to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}

// 16 bytes of 32, from one of the first 16 on.
__device__ __forceinline__ uint4 bytes_from(uint4 low, uint4 high, int first) {
  unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 6; i++) words[i] = first & 8 ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < 5; i++) words[i] = first & 4 ? words[i + 1] : words[i];
  const int shift = first % 4 * 8;
  return {__funnelshift_r(words[0], words[1], shift), __funnelshift_r(words[1], words[2], shift),
          __funnelshift_r(words[2], words[3], shift), __funnelshift_r(words[3], words[4], shift)};
}

// Element `index` of COUNT, of which the first MOST exist: registers have no index.
template <int COUNT, int MOST>
__device__ __forceinline__ int choose(const int* values, int index) {
  if constexpr (MOST <= 0) {
    return 0;
  } else if constexpr (COUNT == 1) {
    return values[0];
  } else {
    constexpr int HALF = COUNT / 2;
    const int low = choose<HALF, MOST>(values, index), high = choose<HALF, MOST - HALF>(values + HALF, index);
    return index & HALF ? high : low;
  }
}

// Waits for the threads of a warpgroup; true if one of them says so.
__device__ __forceinline__ bool any_of_group(int barrier, bool says) {
  unsigned any;
  asm volatile(
      "{\n"
      ".reg .pred says, any;\n"
      "setp.ne.u32 says, %1, 0;\n"
      "barrier.cta.red.or.pred any, %2, %3, says;\n"
      "selp.u32 %0, 1, 0, any;\n"
      "}"
      : "=r"(any)
      : "r"(unsigned(says)), "r"(barrier), "n"(128)
      : "memory");
  return any;
}

// The number of the block's search. Searches have equally many blocks most of the time.
__device__ __forceinline__ int search_of_block(const Launch& launch) {
  const int block = blockIdx.x;
  if (block < launch.search[0].end_block) return 0;
  const int guess = min(int(__fdividef(float(block) * float(launch.searches), float(gridDim.x))), launch.searches - 1);
  if (launch.search[guess].first_block <= block && block < launch.search[guess].end_block) return guess;
  int index = 0;
  for (int last = launch.searches - 1; index < last;) {
    const int middle = (index + last) / 2;
    if (block < launch.search[middle].end_block) {
      last = middle;
    } else {
      index = middle + 1;
    }
  }
  return index;
}

// The work of a block, by the roles of its warps (above); `match` has this order.
//
//   all             load_tile
//   one thread      begin: barriers, empty lists, as many parts of A as the ring has stages
//
//   fetches         fetch_rest: for each part that is left, wait until its stage is empty, and fetch it
//
//   sum             sum_windows: moments of all positions; say that they are summed
//                   settle: for each template, until no warpgroup has another list of suspects,
//                     wait for the lists, score their suspects exactly, and say that they are settled
//
//   multiply        for each template:
//                     multiply_parts: for each part, wait until it is there, d += A B, say that it is empty
//                     wait until the list of the template before is settled, and the moments are summed
//                     find suspects: the positions whose scores may reach what the best is at least
//                     list_suspects: fill the list, say that they are listed, and wait, until none is left
//                       until they are settled
//
// Where all peaks are wanted, there is one template, and instead of looking for suspects:
//
//   multiply        keep_products: d replaces tile and ring, when no warp reads these any more
//   sum, multiply   report_peaks, when products and moments are there

// Barriers in shared memory, by their addresses.
struct Barriers {
  unsigned full, empty;      // of each stage of the ring
  unsigned summed;           // the moments
  unsigned listed, settled;  // of each warpgroup; where all peaks are wanted, `listed` is that of report_peaks

  __device__ static constexpr int count(int groups) { return 2 * MAX_STAGES + 1 + 2 * groups; }

  __device__ __forceinline__ Barriers(const unsigned long long* all, int groups)
      : full(shared_address(all)),
        empty(full + 8 * MAX_STAGES),
        summed(empty + 8 * MAX_STAGES),
        listed(summed + 8),
        settled(listed + 8 * groups) {}
};

// Where a block's positions lie, and the pixels of their windows.
struct Tile {
  unsigned char* pixels;  // in shared memory
  int pitch, pixel_rows;  // bytes from row to row, and rows, of pixels
  int w, h;               // of a window
  int rows;               // of positions
  int offset;             // columns of pixels before the first position's
  int x, y;               // of the first position, in the region
};

// Parts of A in shared memory, stage after stage.
struct Ring {
  unsigned char* parts;
  int stages;         // parts that there is room for
  int chunks, steps;  // of a template
  // Where the part that is fetched next begins.
  int next_step = 0, next_member = 0, next_chunk = 0;

  // Starts fetching the next part. By one thread only.
  __device__ __forceinline__ void fetch(const Search& search, const Barriers& barriers, int stage) {
    const int bytes = (2 * min(PART_STEPS, steps - next_step) + 3) * 256;
    const uint4* spread = search.members[next_member].spread;
    const uint4* from = spread + (next_chunk * (2 * steps + 3) + 2 * next_step) * 16;
    barrier_expect(barriers.full + 8 * stage, bytes);
    bulk_copy(shared_address(parts + stage * PART_BYTES), from, bytes, barriers.full + 8 * stage);
    next_step += PART_STEPS;
    if (next_step >= steps) {
      next_step = 0;
      if (++next_chunk == chunks) {
        next_chunk = 0;
        next_member++;
      }
    }
  }
};

// Starts loading the tile; all threads of a block do.
template <int THREADS, bool ALL_PEAKS>
__device__ __forceinline__ void load_tile(const Image& frame, const Search& search, const Tile& tile, int warp, int lane) {
  const int chunk = lane % 16, byte = search.left - tile.offset + tile.x + 16 * chunk;
  const int first_y = search.top + tile.y;
  if (chunk * 16 < tile.pitch) {
#pragma unroll 4
    for (int row = warp * 2 + lane / 16; row < tile.pixel_rows; row += THREADS / 16) {
      unsigned char* to = tile.pixels + row * tile.pitch + 16 * chunk;
      if constexpr (ALL_PEAKS) {
        // Pixels outside the frame do not count.
        const unsigned char* from = frame.pixels + size_t(min(first_y + row, frame.height - 1)) * frame.pitch;
        const auto load = [&](int at) { return __ldg(reinterpret_cast<const uint4*>(from + min(at, frame.pitch - 16))); };
        *reinterpret_cast<uint4*>(to) = bytes_from(load(byte & ~15), load((byte & ~15) + 16), byte & 15);
      } else {
        const bool is_there = byte < frame.pitch && first_y + row < frame.height;
        const unsigned char* from = is_there ? frame.pixels + size_t(first_y + row) * frame.pitch + byte : frame.pixels;
        copy_or_clear(shared_address(to), from, is_there);
      }
    }
  }
}

// Makes barriers and lists, and starts fetching as many parts as there are stages. By one thread.
template <int GROUPS, bool ALL_PEAKS>
__device__ __forceinline__ void begin(const Search& search, const Barriers& barriers, Ring& ring,
                                      GroupSuspects (&lists)[GROUPS], PeakList& peaks) {
  for (int stage = 0; stage < ring.stages; stage++) {
    barrier_init(barriers.full + 8 * stage, 1);
    barrier_init(barriers.empty + 8 * stage, GROUPS * 4);
  }
  barrier_init(barriers.summed, SUM_WARPS * 32);
  if constexpr (ALL_PEAKS) {
    barrier_init(barriers.listed, (GROUPS * 4 + SUM_WARPS) * 32);
    peaks.count = 0;
  } else {
    for (int group = 0; group < GROUPS; group++) {
      barrier_init(barriers.listed + 8 * group, 128);
      barrier_init(barriers.settled + 8 * group, SUM_WARPS * 32);
      lists[group].count = lists[group].is_more = lists[group].best = 0;
    }
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  for (int stage = 0; stage < ring.stages; stage++) ring.fetch(search, barriers, stage);
}

// Fetches the parts that `begin` has left. By one thread.
__device__ __forceinline__ void fetch_rest(Ring& ring, const Search& search, const Barriers& barriers) {
  int stage = 0;
  unsigned parity = 0;
  while (ring.next_member < search.members_count) {
    barrier_wait(barriers.empty + 8 * stage, parity);
    ring.fetch(search, barriers, stage);
    if (++stage == ring.stages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

// Settles the warpgroups' suspects of all templates. By SUM_WARPS warps; this is number `warp`. patterns,
// exact: shared memory for it, `exact` all zeros.
template <int GROUPS>
__device__ __forceinline__ void settle(const Launch& launch, const Search& search, const Tile& tile,
                                       const Barriers& barriers, GroupSuspects (&lists)[GROUPS], Pattern* patterns,
                                       unsigned* exact, bool shares, int warp, int lane) {
  wait_for_launches_before();
  // Parities of each group's lists.
  unsigned parities = 0;
  Progress* const progress = launch.progress + search.first_progress;
  for (int m = 0; m < search.members_count; m++) {
    // Fetched now, so that it is near when a suspect comes. Two take turns: warps may be one template
    // apart.
    const Member& member = search.members[m];
    const unsigned tag = search.tag + m;
    if (warp == 0 && lane == 0) patterns[tag % 2] = member.pattern;
    for (int i = (warp * 32 + lane) * 32; i < (tile.w + 3) / 4 * tile.h; i += SUM_WARPS * 32 * 32) {
      asm volatile("prefetch.global.L1 [%0];" ::"l"(__cvta_generic_to_global(member.words + i)));
    }
    // Groups that have another list of this template's suspects.
    unsigned open = (1 << GROUPS) - 1, best = 0;
    do {
      unsigned is_more = 0;
#pragma unroll 1
      for (int group = 0; group < GROUPS; group++) {
        if (!(open >> group & 1)) continue;
        barrier_wait(barriers.listed + 8 * group, parities >> group & 1);
        is_more |= lists[group].is_more << group;
        best = max(best, lists[group].best);
      }
      parities ^= open;
      if (shares && warp == 0 && lane == 0 && best > 0) atomicMax(&progress[m].best, best);
      settle_lists<GROUPS>(launch, search, patterns, member.words, tag, lists, open,
                           __fadd_rn(from_ordered(best), -MARGIN), tile.pixels, tile.x - tile.offset, tile.y, warp, exact);
#pragma unroll 1
      for (int group = 0; group < GROUPS; group++) {
        if (open >> group & 1) barrier_arrive(barriers.settled + 8 * group);
      }
      open = is_more;
    } while (open);
  }
  // The last block restores the state from before the search.
  if (shares && warp == 0 && lane == 0) {
    __threadfence();
    if (int(atomicAdd(&progress->done, 1)) + 1 == search.end_block - search.first_block) {
      for (int m = 0; m < search.members_count; m++) progress[m] = {0, 0};
    }
  }
}

// The four values, in rows of TILE_X, of the positions of d[0] to d[3]; the others' lie below them.
template <class T>
struct FirstFour {
  T* at[4];

  template <class Slot>
  __device__ __forceinline__ FirstFour(T* base, const Place& place, Slot slot)
      : at{base + slot(place.x, place.y), base + slot(place.x + 16, place.y), base + slot(place.x + 8, place.y),
           base + slot(place.x + 24, place.y)} {}

  // The position of d[number].
  __device__ __forceinline__ T& operator[](int number) const { return at[number % 4][number / 4 * 4 * TILE_X]; }
};

// The phase that a warpgroup waits for next.
struct Turn {
  unsigned stage = 0;
  // Parities of the barriers: bit 0 the ring's, bit 1 that of `settled`.
  unsigned parities = 2;
};

// Adds a template's products to d. Returns the stage of the last part, which is still in use.
template <int N>
__device__ __forceinline__ unsigned multiply_parts(int (&d)[N / 2], const Ring& ring, const Barriers& barriers,
                                                   unsigned rows_from, int pitch, int lane, Turn& turn) {
  unsigned previous = 0;
  for (int chunk = 0; chunk < ring.chunks; chunk++) {
    unsigned long long b = operand(rows_from + 16 * chunk, pitch, 4 * pitch);
    for (int first = 0; first < ring.steps; first += PART_STEPS) {
      unsigned long long a = operand(shared_address(ring.parts) + turn.stage * PART_BYTES, 256, 128);
      barrier_wait(barriers.full + 8 * turn.stage, turn.parities & 1);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      multiply_part(d, a, b, pitch, min(PART_STEPS, ring.steps - first));
      // The part before this one is free.
      wait_for_products<1>();
      if (first + chunk > 0 && lane == 0) barrier_arrive(barriers.empty + 8 * previous);
      previous = turn.stage;
      if (++turn.stage == ring.stages) {
        turn.stage = 0;
        turn.parities ^= 1;
      }
    }
  }
  return previous;
}

// Stores the products in place of tile and ring, when no warp reads these any more. eights: see `match`.
template <int GROUPS, int N>
__device__ __forceinline__ void keep_products(const int (&d)[N / 2], const Barriers& barriers, int* products,
                                              const Place& place, int eights) {
  barrier_wait(barriers.summed, 0);
  asm volatile("barrier.cta.sync %0, %1;" ::"n"(DONE_BARRIER), "n"(GROUPS * 128) : "memory");
  const FirstFour<int> mine(products, place, products_slot);
#pragma unroll
  for (int k = 0; k < N / 16; k++) {
    if (k >= eights) break;
#pragma unroll
    for (int i = 8 * k; i < 8 * k + 8; i++) mine[i] = d[i];
  }
}

// Passes suspects to the warps that settle them, a list at a time. Few are left, so this is short code rather
// than fast.
template <int N>
__device__ __forceinline__ void list_suspects(unsigned long long suspects, const int (&d)[N / 2], const Moments* sums,
                                              const Place& place, const Member& member, int slack, GroupSuspects& list,
                                              int group, const Barriers& barriers, Turn& turn) {
  for (bool is_more = true; is_more;) {
#pragma unroll 1
    for (unsigned long long left = suspects; left; left &= left - 1) {
      const int number = __ffsll(left) - 1;
      const int at_x = place.x_of(number), at_y = place.y_of(number);
      const Moments at = sums[moments_slot(at_x, at_y)];
      const int rest = exact_rest(choose<64, N / 2>(d, number), at.sum, member.mean, slack);
      const Bounds bounds = score_bounds(rest, at.root, member.scale);
      const unsigned before = atomicMax(&list.best, ordered(__fadd_rn(bounds.least, -MARGIN)));
      if (bounds.most >= __fadd_rn(from_ordered(before), -MARGIN)) {
        const unsigned slot = atomicAdd(&list.count, 1);
        if (slot >= MAX_SUSPECTS) continue;
        list.at[slot] = at_x | at_y << 16;
        list.most[slot] = bounds.most;
      }
      suspects &= ~(1ull << number);
    }
    is_more = any_of_group(GROUP_BARRIER + group, suspects != 0);
    if (is_more && threadIdx.x % 128 == 0) list.is_more = 1;
    barrier_arrive(barriers.listed + 8 * group);
    if (is_more) {
      barrier_wait(barriers.settled + 8 * group, turn.parities >> 1);
      turn.parities ^= 2;
    }
  }
}

// GROUPS warpgroups multiply, N columns of D each.
template <int GROUPS, int N, bool ALL_PEAKS>
__device__ __forceinline__ void match(const Launch& launch) {
  constexpr int PRODUCT_WARPS = GROUPS * 4, THREADS = (PRODUCT_WARPS + SUM_WARPS + 1) * 32;
  constexpr int GROUP_ROWS = N / 2, PEAK_WARPS = PRODUCT_WARPS + SUM_WARPS;
  static_assert((GROUPS * GROUP_ROWS - 1 + PEAK_WARPS - 1) / PEAK_WARPS <= 8, "rows that possible_peaks has bits for");
  constexpr int OVERLAP = ALL_PEAKS ? PEAKS_OVERLAP : 0;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ __align__(8) unsigned long long barrier_words[Barriers::count(GROUPS)];
  __shared__ GroupSuspects lists[GROUPS];
  __shared__ unsigned exact[GROUPS * MAX_SUSPECTS * EXACT_SUMS];
  __shared__ PeakList peaks;
  __shared__ Pattern pattern, patterns[2];

  let_next_begin();
  const Search& search = launch.search[search_of_block(launch)];
  const int warp = __shfl_sync(ALL_LANES, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int w = search.w, h = search.h, tile_rows = search.tile_rows;
  const int chunks = (w + 30) / 16, steps = (h + 4) / 2;
  const int pitch = pitch_of(w), rows = tile_rows + h - 1;
  // For the best position, the tile begins at a multiple of 16 bytes: its first `offset` columns lie before
  // the region.
  const int offset = ALL_PEAKS ? 0 : search.left & 15;
  const int block = blockIdx.x - search.first_block, block_y = quotient(block, search.across);
  // The tile comes first: for rows of a group beyond the tile's, the tensor cores read the memory behind it.
  const Tile tile = {shared,
                     pitch,
                     rows,
                     w,
                     h,
                     tile_rows,
                     offset,
                     (block - block_y * search.across) * (TILE_X - OVERLAP),
                     block_y * (tile_rows - OVERLAP)};
  load_tile<THREADS, ALL_PEAKS>(launch.frame, search, tile, warp, lane);

  const int parts = (steps + PART_STEPS - 1) / PART_STEPS, all_parts = chunks * parts * search.members_count;
  const int tile_bytes = (rows * pitch + 127) / 128 * 128, starts_bytes = (tile_rows * 8 + 127) / 128 * 128;
  const int room = launch.shared_bytes - tile_bytes - tile_rows * TILE_X * int(sizeof(Moments)) - starts_bytes;
  const int stages = min(min(MAX_STAGES, all_parts), room / PART_BYTES);
  Ring ring = {shared + tile_bytes, stages, chunks, steps};
  Moments* sums = reinterpret_cast<Moments*>(ring.parts + stages * PART_BYTES);
  int* const products = reinterpret_cast<int*>(shared);
  if constexpr (ALL_PEAKS) {
    // Products take the place of the tile and of the ring, and may take more.
    const int products_bytes = tile_rows * TILE_X * int(sizeof(int));
    sums = reinterpret_cast<Moments*>(shared + max(tile_bytes + stages * PART_BYTES, products_bytes));
  }
  uint2* starts = reinterpret_cast<uint2*>(sums + tile_rows * TILE_X);
  const Barriers barriers(barrier_words, GROUPS);
  const bool is_producer = warp == PRODUCT_WARPS + SUM_WARPS;
  // Blocks that run at about the same time get each other's bounds too late.
  const bool shares = launch.shares_best;

  if (is_producer && lane == 0) begin<GROUPS, ALL_PEAKS>(search, barriers, ring, lists, peaks);
  for (int i = threadIdx.x; !ALL_PEAKS && i < GROUPS * MAX_SUSPECTS * EXACT_SUMS; i += THREADS) exact[i] = 0;
  asm volatile("cp.async.wait_all;" ::: "memory");
  // The tensor cores read next what ordinary copies wrote.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();

  if (warp >= PRODUCT_WARPS) {
    if (is_producer) {
      if (lane == 0) fetch_rest(ring, search, barriers);
      return;
    }
    const int number = warp - PRODUCT_WARPS;
    const int first_x = offset - tile.x;
    sum_windows<ALL_PEAKS>(tile.pixels, pitch, search, tile_rows, number, first_x, first_x + search.width,
                           search.height - tile.y, starts, sums);
    barrier_arrive(barriers.summed);
    if constexpr (ALL_PEAKS) {
      if (number == 0 && lane == 0) pattern = search.members->pattern;
    } else {
      settle<GROUPS>(launch, search, tile, barriers, lists, patterns, exact, shares, number, lane);
    }
  } else {
    const int group = warp / 4;
    const unsigned rows_from = shared_address(tile.pixels) + group * GROUP_ROWS * tile.pitch;
    const Place place = {lane % 4 * 32 + lane / 4, group * GROUP_ROWS + 3 - warp % 4};
    // Eight at a time, so that eight loads are under way together: rows 8k and 8k + 4 of the group. Its rows
    // beyond the tile's have no moments; the tile's are a multiple of eight.
    const int eights = min(max(tile.rows - group * GROUP_ROWS, 0), GROUP_ROWS) / 8;
    GroupSuspects& list = lists[group];
    Turn turn;
    const int slack = slack_of(tile.w * tile.h);
    for (int m = 0; m < search.members_count; m++) {
      // Fetched now, as they are wanted as soon as the products are there.
      const Member& member = search.members[m];
      const float rough_mean = member.rough_mean, root_scale = member.root_scale;
      const auto best_of_others = [&] {
        const Progress& progress = launch.progress[search.first_progress + m];
        return shares ? from_ordered(*(volatile const unsigned*)&progress.best) : NO_BOUND;
      };
      float best_before = m > 0 ? best_of_others() : NO_BOUND;
      // All lanes of a warp together; the compiler must know that.
      __syncwarp();
      int d[N / 2];
#pragma unroll
      for (int i = 0; i < N / 2; i++) d[i] = ALL_PEAKS ? -slack : slack;
      const unsigned last = multiply_parts<N>(d, ring, barriers, rows_from, tile.pitch, lane, turn);
      if constexpr (ALL_PEAKS) {
        wait_for_all_products<N>(d);
        keep_products<GROUPS, N>(d, barriers, products, place, eights);
        break;
      }
      if (m == 0) {
        wait_for_launches_before();
        best_before = best_of_others();
      }
      // The list of the template before is empty again.
      barrier_wait(barriers.settled + 8 * group, turn.parities >> 1);
      turn.parities ^= 2;
      wait_for_all_products<N>(d);
      if (lane == 0) barrier_arrive(barriers.empty + 8 * last);
      if (m == 0) barrier_wait(barriers.summed, 0);
      const FirstFour<const Moments> moments(sums, place, moments_slot);
      // Suspects are the positions whose scores may reach `floor`, by bounds in f32. Where many do, lower
      // bounds of all scores give a higher floor, and the loop runs again. (In a function of its own this
      // loop takes two registers more with 2x80.)
      float floor = __fadd_rn(fmaxf(launch.min_score, best_before), -MARGIN);
      unsigned long long suspects;  // bit i: d[i]
      for (bool is_again = false;; is_again = true) {
        // All but NaN reach a floor of 0 or less.
        const float least = floor <= 0.0f ? -1e30f : __fmul_rn(__fmul_rn(floor, root_scale), 1.0f - 1.0f / (1 << 18));
        unsigned of_32[2] = {};
#pragma unroll
        for (int k = 0; k < N / 16; k++) {
          if (k >= eights) break;
          Moments s[8];
#pragma unroll
          for (int i = 0; i < 8; i++) s[i] = moments[8 * k + i];
          unsigned of_8 = 0;
#pragma unroll
          for (int i = 7; i >= 0; i--) {
            // Keeps the compiler from holding values in registers until the next round.
            asm volatile("" : "+r"(d[8 * k + i]));
            // Negative where it may reach the floor. NaN, of positions outside the region, has no sign.
            const float lack = __fmaf_rn(s[i].root, least, rough_lack(d[8 * k + i], s[i].sum, rough_mean));
            of_8 = __funnelshift_l(__float_as_uint(lack), of_8, 1);
          }
          of_32[k / 4] |= of_8 << 8 * (k % 4);
        }
        suspects = (unsigned long long)of_32[1] << 32 | of_32[0];
        if (is_again || add_lanes(__popcll(suspects)) <= FEW_SUSPECTS) break;
        const float scale = member.scale;
        float best = NO_BOUND;
#pragma unroll
        for (int k = 0; k < N / 16; k++) {
          if (k >= eights) break;
          Moments s[8];
#pragma unroll
          for (int i = 0; i < 8; i++) s[i] = moments[8 * k + i];
#pragma unroll
          for (int i = 0; i < 8; i++) {
            best = fmaxf(best, least_score(rough_lack(d[8 * k + i], s[i].sum, rough_mean), slack, s[i].root, scale));
          }
        }
        best = from_ordered(__reduce_max_sync(ALL_LANES, ordered(best)));
        if (best > 0.0f) floor = fmaxf(floor, __fadd_rn(best, -2.0f * MARGIN));
      }
      list_suspects<N>(suspects, d, sums, place, member, slack, list, group, barriers, turn);
    }
  }
  if constexpr (ALL_PEAKS) {
    // The tiles before judge the first row and column, if there are any, and the tiles after the last ones.
    const PeaksTile of = {reinterpret_cast<int*>(shared), sums, slack_of(w * h), tile.x, tile.y, tile.x > 0, tile.y > 0,
                          min(tile_rows - 1, search.height - tile.y)};
    report_peaks<PEAK_WARPS>(launch, search, *search.members, pattern, of, peaks, warp, barriers.listed);
  }
}

extern "C" {

#define MATCH(name, groups, n)                                                                      \
  __global__ void __launch_bounds__(128 * groups + 32 * SUM_WARPS + 32, 1) ncc_wgmma_##name(         \
      const __grid_constant__ Launch launch) {                                                      \
    match<groups, n, false>(launch);                                                                \
  }                                                                                                 \
  __global__ void __launch_bounds__(128 * groups + 32 * SUM_WARPS + 32, 1) ncc_wgmma_##name##_peaks( \
      const __grid_constant__ Launch launch) {                                                      \
    match<groups, n, true>(launch);                                                                 \
  }

MATCH(2x128, 2, 128)
MATCH(3x96, 3, 96)
MATCH(2x80, 2, 80)
MATCH(1x32, 1, 32)

}  // extern "C"
