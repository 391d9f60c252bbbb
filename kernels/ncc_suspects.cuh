// Suspects that the kernels of ncc_mma.cuh leave in device memory, and their exact scores.
#pragma once

#include "ncc_fast.cuh"

// A position that may be a peak.
struct Suspect {
  unsigned x, y;
  float bound;  // its score is not higher
  unsigned unused;
};

// What a search in f32 leaves to `settle`, which empties it again; before the first search it is all zeros.
struct Suspicion {
  unsigned count;  // of suspects, those too for which there was no room
  unsigned best;   // a lower bound of the best score, ordered(f32)
  unsigned done;   // blocks of `settle` that have finished
  unsigned unused;
};

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
  int capacity;   // suspects there is room for
  Suspicion* suspicion;
  Suspect* suspects;  // zeros before the first search: `settle` looks before it knows how many there are
};

__device__ __forceinline__ void suspect(const Search& search, int x, int y, float bound) {
  const unsigned index = atomicAdd(&search.suspicion->count, 1);
  if (index < search.capacity) search.suspects[index] = {unsigned(x), unsigned(y), bound, 0};
}

// Scores the suspects exactly and appends to the candidates those that score min_score or more and precede their neighbours
// in the tie order. Where only the best is wanted, suspects that cannot be it any more are passed over.
//
// Any grid; block SETTLE_THREADS; columns h + (columns + 2)(h + 2) words of dynamic shared memory, columns = w / 4 rounded
// up. A block takes one suspect after another. words: the template, of four pixels each, the last of a row filled up with
// zeros. counts[0] is the number of candidates, counts[1] of searches that had more suspects than room: such a search is to
// be done again by kernels that write a map.
constexpr int SETTLE_THREADS = 256;

__device__ __forceinline__ void settle_suspects(const Search& search, const unsigned* words, double min_score,
                                                unsigned tag, Candidate* candidates, unsigned capacity,
                                                unsigned* counts) {
  constexpr int WARPS = SETTLE_THREADS / 32;
  __shared__ Suspect survivors[SETTLE_THREADS];
  __shared__ int survivor_count;
  extern __shared__ unsigned window[];
  // Two, so that one can be written while the other is being read.
  __shared__ unsigned partial[2][WARPS][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Pattern& pattern = search.pattern;
  const Image& frame = search.frame;
  if (threadIdx.x == 0) survivor_count = 0;
  // Each thread looks at a suspect; fetched along with the count, before it is known whether it is there.
  unsigned index = threadIdx.x * gridDim.x + blockIdx.x;
  Suspect mine = search.suspects[min(index, unsigned(search.capacity) - 1)];
  const unsigned count = *(volatile unsigned*)&search.suspicion->count;
  const float best = from_ordered(*(volatile unsigned*)&search.suspicion->best);
  __syncthreads();
  // Everyone has read it: the last leaves everything as it was before the search.
  if (threadIdx.x == SETTLE_THREADS - 1 && atomicAdd(&search.suspicion->done, 1) + 1 == gridDim.x) {
    if (count > search.capacity) atomicAdd(&counts[1], 1);
    *search.suspicion = {0, 0, 0, 0};
  }
  const unsigned known = min(count, unsigned(search.capacity));
  const int columns = (pattern.w + 3) / 4, strips = SETTLE_THREADS / columns;
  const int strip_rows = (pattern.h + strips - 1) / strips;
  // Counted in words: frames of 2^31 bytes or more have less than 2^31 of these.
  const int frame_words = frame.pitch >> 2, last_word = frame_words * frame.height - 1;
  // The template, behind the window.
  unsigned* pattern_words = window + (pattern.h + 2) * (columns + 2);
  if (blockIdx.x < known) {
#pragma unroll 4
    for (int i = threadIdx.x; i < pattern.h * columns; i += SETTLE_THREADS) pattern_words[i] = __ldg(words + i);
  }
  int parity = 0;
  for (unsigned round = 0; round < known; round += gridDim.x * SETTLE_THREADS) {
    if (index < known && (search.all_peaks || mine.bound >= best)) survivors[atomicAdd(&survivor_count, 1)] = mine;
    __syncthreads();
    const int these = survivor_count;
    for (int number = 0; number < these; number++, parity ^= 1) {
      const Suspect it = survivors[number];
      const int x = it.x, y = it.y;
      // The window and a pixel around it. Neighbours outside the frame do not count, whatever is read for them.
      const int left = search.left + x - 1, top = search.top + y - 1;
      const int pitch = columns + 2;
      if (number > 0) __syncthreads();
#pragma unroll 4
      for (int i = threadIdx.x; i < (pattern.h + 2) * pitch; i += SETTLE_THREADS) {
        const int j = i / pitch, row = min(max(top + j, 0), frame.height - 1);
        const int word = row * frame_words + (left >> 2) + i - j * pitch;
        window[i] = __ldg(reinterpret_cast<const unsigned*>(frame.pixels) + min(max(word, 0), last_word));
      }
      __syncthreads();
      NineWindows windows;
      // Each thread has a column of words and a strip of rows; strips overlap by the rows above and below.
      const int column = threadIdx.x % columns, first = threadIdx.x / columns * strip_rows;
      const int end = min(first + strip_rows, pattern.h);
      if (first < end) {
        const int shift = (left & 3) * 8;
        const unsigned mask = 0xffffffffu >> (32 - 8 * min(pattern.w - 4 * column, 4));
        // Row j of the image meets the rows below, at and above it.
        unsigned above = 0, here = 0;
#pragma unroll 1
        for (int j = first - 1; j <= end; j++) {
          const bool is_there[3] = {j + 1 < end, j >= first && j < end, j > first};
          const unsigned meets[3] = {is_there[0] ? pattern_words[(j + 1) * columns + column] : 0, here, above};
          const unsigned* row = window + (j + 1) * pitch + column;
          windows.add(__funnelshift_r(row[0], row[1], shift), __funnelshift_r(row[1], row[2], shift), mask, meets, is_there);
          above = here;
          here = meets[0];
        }
      }
      const unsigned mine_of_warp = windows.of_warp(lane);
      if (lane < EXACT_SUMS) partial[parity][warp][lane] = mine_of_warp;
      __syncthreads();
      if (warp != 0) continue;
      unsigned total = 0;
      for (int i = 0; i < WARPS && lane < EXACT_SUMS; i++) total += partial[parity][i][lane];
      // Its place is read again: keeping it takes a register more than there are.
      report_peak(pattern, total, survivors[number].x, survivors[number].y, search.width, search.height, min_score, tag,
                  candidates, capacity, &counts[0]);
    }
    __syncthreads();
    if (threadIdx.x == 0) survivor_count = 0;
    __syncthreads();
    index += gridDim.x * SETTLE_THREADS;
    mine = search.suspects[min(index, unsigned(search.capacity) - 1)];
  }
}
