// `settle`: exact scores of suspects that lie in device memory.
//
// Oracle: that of ncc_mma.cu, which includes this, and
// each_kernel_that_leaves_suspects_makes_a_score_map_if_there_are_too_many (crates/lockon-cuda/src/tests.rs).
#pragma once

#include "ncc_fast.cuh"

// A position that may be a peak.
struct Suspect {
  unsigned x, y;
  float bound;  // its score is not higher
  unsigned unused;
};
static_assert(sizeof(Suspect) == 16, "as the host has room for it");

// State that a search in f32 leaves to `settle`, which clears it again; before the first search it is all
// zeros.
struct Suspicion {
  unsigned count;  // of suspects, also those without room
  unsigned best;   // a lower bound of the best score, ordered(f32)
  unsigned done;   // blocks of `settle` that have finished
  unsigned unused;
};
static_assert(sizeof(Suspicion) == 16, "as the host has room for it");

// Suspects in device memory, for `settle`.
struct Suspects {
  Suspicion* state;
  Suspect* list;  // zeros before the first search: `settle` looks before it knows how many there are
  unsigned capacity;

  __device__ __forceinline__ void add(int x, int y, float bound) const {
    const unsigned index = atomicAdd(&state->count, 1);
    if (index < capacity) list[index] = {unsigned(x), unsigned(y), bound, 0};
  }
};
static_assert(sizeof(Suspects) == 24 && OFFSET(Suspects, list) == 8 && OFFSET(Suspects, capacity) == 16,
              "as the host fills it");

// The template and the place of a search: `width` times `height` positions, the first at (left, top) of the
// frame.
struct Sought {
  Image frame;  // the whole: rows start at multiples of 16 bytes, and so does the next after each
  int left, top;
  int width, height;
  Pattern pattern;
  Suspects suspects;
};
static_assert(sizeof(Sought) == 96 && OFFSET(Sought, left) == 24 && OFFSET(Sought, pattern) == 40 &&
                  OFFSET(Sought, suspects) == 72,
              "as the host fills it");

// Warps of a block: up to so many work on one suspect. Other numbers were not measured.
constexpr int SETTLE_WARPS = 8;
constexpr int SETTLE_THREADS = SETTLE_WARPS * 32;
// Blocks that a multiprocessor must have room for: this limits a thread's registers.
constexpr int SETTLE_BLOCKS = 2;

// Rows whose pixels a lane fetches together. Other numbers were not measured.
constexpr int SETTLE_ROWS = 4;

extern "C" {

// Scores the suspects exactly and appends to the candidates those that score min_score or more and precede
// their neighbours in the tie order. Suspects below the best lower bound, if there is one, are skipped.
//
// Any grid; block SETTLE_THREADS. words: the template (`pack_template`). counts[0] is the number of
// candidates, counts[1] of searches that had more suspects than room: such a search must be repeated by
// kernels that write a map.
//
// A team of warps takes one suspect after another. The fewer suspects there are, the more warps make a team.
__global__ void __launch_bounds__(SETTLE_THREADS, SETTLE_BLOCKS)
    settle(const __grid_constant__ Sought sought, const unsigned* words, double min_score, unsigned tag,
           Candidate* candidates, unsigned capacity, unsigned* counts) {
  // Two, so that one can be written while the other is being read.
  __shared__ unsigned partial[2][SETTLE_WARPS][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Pattern& pattern = sought.pattern;
  const Image& frame = sought.frame;
  const Suspects& suspects = sought.suspects;
  // Needed as soon as the suspects are known.
  for (int i = threadIdx.x * 32; i < (pattern.w + 3) / 4 * pattern.h; i += SETTLE_THREADS * 32) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(__cvta_generic_to_global(words + i)));
  }
  // The first suspect, for teams of 1, 2, 4 and 8 warps; fetched along with the count, before it is known
  // whether it is there.
  Suspect first[4];
#pragma unroll
  for (int i = 0; i < 4; i++) first[i] = suspects.list[min(blockIdx.x + gridDim.x * (warp >> i), suspects.capacity - 1)];
  // One thread reads for all: if every warp of every block read the same address, that would take longer than
  // all the rest.
  __shared__ Suspicion state;
  if (threadIdx.x == 0) {
    state.count = *(volatile unsigned*)&suspects.state->count;
    state.best = *(volatile unsigned*)&suspects.state->best;
  }
  __syncthreads();
  const unsigned count = state.count, known = min(count, suspects.capacity);
  const float best = from_ordered(state.best);
  int doublings = 0;
#pragma unroll
  for (int i = 1; i < 4; i++) doublings += known <= gridDim.x * (SETTLE_WARPS >> i);
  const int team_warps = 1 << doublings, team = warp >> doublings, strip = warp - team * team_warps;
  const int strip_rows = (pattern.h + 2 + team_warps - 1) >> doublings;
  const unsigned step = gridDim.x * (SETTLE_WARPS >> doublings);
  Suspect it = doublings == 0 ? first[0] : doublings == 1 ? first[1] : doublings == 2 ? first[2] : first[3];
  int parity = 0;
  for (unsigned index = blockIdx.x + gridDim.x * team; index < known; index += step) {
    if (it.bound >= best) {
      NineWindows windows;
      const Around around(frame.pixels, frame.pitch, frame.height, sought.left + int(it.x), sought.top + int(it.y));
      add_rows<SETTLE_ROWS>(windows, around, pattern.w, pattern.h, strip * strip_rows - 1, (strip + 1) * strip_rows - 1,
                            words);
      unsigned total = windows.of_warp(lane);
      if (team_warps > 1) {
        partial[parity][warp][lane] = total;
        asm volatile("barrier.cta.sync %0, %1;" ::"r"(1 + team), "r"(team_warps * 32) : "memory");
        total = 0;
        for (int i = 0; i < team_warps; i++) total += partial[parity][team * team_warps + i][lane];
        parity ^= 1;
      }
      if (strip == 0) {
        score_peak(pattern, total, it.x, it.y, sought.width, sought.height, min_score, tag, candidates, capacity,
                   &counts[0]);
      }
    }
    it = suspects.list[min(index + step, known - 1)];
  }
  // The last block restores the state from before the search. The warp that checks is one that is done early.
  if (threadIdx.x == SETTLE_THREADS - 1 && atomicAdd(&suspects.state->done, 1) + 1 == gridDim.x) {
    if (count > suspects.capacity) atomicAdd(&counts[1], 1);
    *suspects.state = {0, 0, 0, 0};
  }
}

}  // extern "C"
