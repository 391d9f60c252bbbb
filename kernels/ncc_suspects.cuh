// Exact scores of suspects that lie in device memory.
#pragma once

#include "ncc_fast.cuh"

// What to search: a region of `width` times `height` positions whose first is at (left, top) of the frame.
struct Search {
  Image frame;  // the whole: rows start at multiples of 16 bytes, and so does the next after each
  int left, top;
  int width, height;
  Pattern pattern;
  unsigned mean;  // 2^24 t1 / n, to the nearest
  float factor;   // (n t2 - t1 t1) / (n n)
  float min_score;
  int all_peaks;  // 0: only the best position is wanted
  Suspects suspects;
};

// Scores the suspects exactly and appends to the candidates those that score min_score or more and precede their neighbours
// in the tie order. Where only the best is wanted, suspects that cannot be it any more are passed over.
//
// Any grid; block SETTLE_THREADS. words: the template, of four pixels each, the last of a row filled up with zeros. counts[0] is
// the number of candidates, counts[1] of searches that had more suspects than room: such a search is to be done again by
// kernels that write a map.
//
// A team of warps takes one suspect after another. The fewer suspects there are, the more warps make a team.
constexpr int SETTLE_WARPS = 8;
constexpr int SETTLE_THREADS = SETTLE_WARPS * 32;

__device__ __forceinline__ void settle_suspects(const Search& search, const unsigned* words, double min_score,
                                                unsigned tag, Candidate* candidates, unsigned capacity,
                                                unsigned* counts) {
  // Two, so that one can be written while the other is being read.
  __shared__ unsigned partial[2][SETTLE_WARPS][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Pattern& pattern = search.pattern;
  const Image& frame = search.frame;
  // The first suspect, for teams of 1, 2, 4 and 8 warps; fetched along with the count, before it is known whether it is there.
  Suspect first[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    first[i] = search.suspects.list[min(blockIdx.x + gridDim.x * (warp >> i), search.suspects.capacity - 1)];
  }
  const unsigned count = *(volatile unsigned*)&search.suspects.state->count;
  const float best = from_ordered(*(volatile unsigned*)&search.suspects.state->best);
  const unsigned known = min(count, search.suspects.capacity);
  __syncthreads();
  // Everyone has read it: the last leaves everything as it was before the search.
  if (threadIdx.x == SETTLE_THREADS - 1 && atomicAdd(&search.suspects.state->done, 1) + 1 == gridDim.x) {
    if (count > search.suspects.capacity) atomicAdd(&counts[1], 1);
    *search.suspects.state = {0, 0, 0, 0};
  }
  int doublings = 0;
#pragma unroll
  for (int i = 1; i < 4; i++) doublings += known <= gridDim.x * (SETTLE_WARPS >> i);
  const int team_warps = 1 << doublings, team = warp >> doublings, strip = warp - team * team_warps;
  const int strip_rows = (pattern.h + 2 + team_warps - 1) >> doublings;
  const unsigned step = gridDim.x * (SETTLE_WARPS >> doublings);
  Suspect it = doublings == 0 ? first[0] : doublings == 1 ? first[1] : doublings == 2 ? first[2] : first[3];
  int parity = 0;
  for (unsigned index = blockIdx.x + gridDim.x * team; index < known; index += step) {
    const Suspect next = search.suspects.list[min(index + step, known - 1)];
    if (search.all_peaks || it.bound >= best) {
      NineWindows windows;
      const Around around(frame.pixels, frame.pitch, frame.height, search.left + int(it.x), search.top + int(it.y));
      add_rows<4>(windows, around, pattern.w, pattern.h, strip * strip_rows - 1, (strip + 1) * strip_rows - 1, words);
      unsigned total = windows.of_warp(lane);
      if (team_warps > 1) {
        partial[parity][warp][lane] = total;
        asm volatile("barrier.cta.sync %0, %1;" ::"r"(1 + team), "r"(team_warps * 32) : "memory");
        total = 0;
        for (int i = 0; i < team_warps; i++) total += partial[parity][team * team_warps + i][lane];
        parity ^= 1;
      }
      if (strip == 0) {
        report_peak(pattern, total, it.x, it.y, search.width, search.height, min_score, tag, candidates, capacity,
                    &counts[0]);
      }
    }
    it = next;
  }
}
