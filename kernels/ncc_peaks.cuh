// All peaks of a tile, for ncc_wgmma.cu, from its sums of products and its moments.
//
// A tile overlaps the next ones by two rows and two columns, so that it has the neighbours of all positions
// that it judges. First bounds of all scores select the positions that may reach min_score and that no
// neighbour surely beats; then nine lanes score such a position and its neighbours exactly.
//
// Bounds. As in ncc_wgmma.cuh V is cut off, and y is ST - S t1 / n in f32, less slack: ST - S t1 / n = x lies
// between y and y + 2 slack. With r = 1 / sqrt(V), x r is score sqrt(scale) sqrt(V' / V), where V <= V' < V +
// 1 is what V was before. The score is at most 1, so that x r is off from score sqrt(scale) by less than
// sqrt(scale) r r / 2. So
//
//   (y - k r) r <= score sqrt(scale) <= (y - k r) r + (2 slack + 2 k r) r,   k = 0.55 sqrt(scale)
//
// but for roundings: MARGIN is for those of scores; slack is 1 more than it must be, for those of bounds that
// are far from any. Of a flat window, whose r is 2^-16, the bounds are near 0, and its score, 0, lies between
// them.
//
// Oracle: that of ncc_wgmma.cu, which includes this; scores_lie_between_the_bounds_by_which_peaks_are_told
// (crates/lockon-cuda/src/wgmma/bounds.rs) for the bounds.
#pragma once

#include "launches.cuh"
#include "ncc_wgmma.cuh"

// Columns and rows that a tile has in common with the next.
constexpr int PEAKS_OVERLAP = 2;

// Below all bounds.
constexpr float BELOW_ALL = -1e30f;

// Positions of a tile that may be peaks, as many as are scored at a time. Other numbers were not measured.
constexpr int MAX_LISTED = 1024;
struct PeakList {
  unsigned count;           // also positions without room
  unsigned at[MAX_LISTED];  // x in the low, y in the high half
};

// Judged are the positions in columns first_x <= x < TILE_X - 1 and rows first_y <= y < end_y.
struct PeaksTile {
  const int* products;     // ST less slack, see `products_slot`
  const Moments* moments;  // as `moments_of` makes them for all peaks
  int slack;
  int left, top;  // where position (0, 0) of the tile lies in the region
  int first_x, first_y, end_y;
};

// Where products of a tile lie: rows of TILE_X, shuffled so that the threads of a warp that hold products of
// positions 32 apart write to different banks.
__device__ __forceinline__ int products_slot(int x, int y) { return y * TILE_X + (x ^ (x >> 5) << 3); }

// How much wider bounds are because V was cut off: half of sqrt(scale), and more for roundings.
__device__ __forceinline__ constexpr float cut_of(float root_scale) { return 0.55f * root_scale; }
static_assert(cut_of(1.0f) == 0.55f, "as the host's test has it (wgmma/bounds.rs)");

// Terms of bounds that do not depend on the position.
struct BoundTerms {
  float mean, cut, doubt;

  __device__ __forceinline__ BoundTerms(const Member& member, int slack)
      : mean(member.rough_mean), cut(cut_of(member.root_scale)), doubt(2.0f * float(slack)) {}
};

// Bounds of score sqrt(scale) of four neighbouring positions in a row of a tile; NaN outside the region.
struct FourBounds {
  float least[4], most[4];

  __device__ __forceinline__ FourBounds(const PeaksTile& tile, const BoundTerms& terms, int x, int y) {
    const int4 four = *reinterpret_cast<const int4*>(tile.products + products_slot(x, y));
    const float4 first = *reinterpret_cast<const float4*>(tile.moments + moments_slot(x, y));
    const float4 second = *reinterpret_cast<const float4*>(tile.moments + moments_slot(x + 2, y));
    const int products[4] = {four.x, four.y, four.z, four.w};
    const float sums[4] = {first.x, first.z, second.x, second.z}, roots[4] = {first.y, first.w, second.y, second.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      // The bits after a float's exponent: 2^23 + S.
      const float above = __uint_as_float(packed_sum(sums[i]) | __float_as_uint(float(1 << SUM_BITS)));
      const float y = __fmaf_rn(__fsub_rn(float(1 << SUM_BITS), above), terms.mean, float(products[i]));
      least[i] = __fmul_rn(__fmaf_rn(roots[i], -terms.cut, y), roots[i]);
      most[i] = __fmaf_rn(roots[i], __fmaf_rn(roots[i], 2.0f * terms.cut, terms.doubt), least[i]);
    }
  }
};

// The positions in rows first_y <= y < end_y, eight at most, that may reach min_score, and that no neighbour
// surely beats: bits 4 k to 4 k + 3 are a lane's four positions in row first_y + k.
__device__ __forceinline__ unsigned possible_peaks(const PeaksTile& tile, const Member& member, float min_score, int first_y,
                                                   int end_y) {
  const int lane = threadIdx.x % 32, x = 4 * lane;
  const BoundTerms terms(member, tile.slack);
  // One for each of two bounds, and one for min_score.
  const float margin = 3.0f * MARGIN * member.root_scale, floor = __fsub_rn(min_score * member.root_scale, margin);
  unsigned asked = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) asked |= x + i >= tile.first_x && x + i < TILE_X - 1 ? 1u << i : 0;
  // Lower bounds of the judged row and of the one above it.
  float above[4] = {BELOW_ALL, BELOW_ALL, BELOW_ALL, BELOW_ALL}, here[4] = {BELOW_ALL, BELOW_ALL, BELOW_ALL, BELOW_ALL};
  float most[4] = {BELOW_ALL, BELOW_ALL, BELOW_ALL, BELOW_ALL};
  unsigned possible = 0;
  int bit = first_y > 0 ? -8 : -4;
#pragma unroll 1
  for (int y = max(first_y - 1, 0); y <= end_y; y++, bit += 4) {
    const FourBounds below(tile, terms, x, y);
    const bool reaches = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3])) >= floor;
    if (bit >= 0 && __any_sync(ALL_LANES, reaches)) {
      // The highest lower bound of three by three, by columns first.
      float columns[6];
#pragma unroll
      for (int i = 0; i < 4; i++) columns[i + 1] = fmaxf(fmaxf(above[i], here[i]), below.least[i]);
      columns[0] = __shfl_up_sync(ALL_LANES, columns[4], 1);
      columns[5] = __shfl_down_sync(ALL_LANES, columns[1], 1);
      // The first lane has no left neighbour; the last column is not judged.
      if (lane == 0) columns[0] = BELOW_ALL;
      unsigned judged = 0;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float highest = fmaxf(fmaxf(columns[i], columns[i + 1]), columns[i + 2]);
        judged |= most[i] >= fmaxf(__fsub_rn(highest, margin), floor) ? 1u << i : 0;
      }
      possible |= (judged & asked) << bit;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      above[i] = here[i];
      here[i] = below.least[i];
      most[i] = below.most[i];
    }
  }
  return possible;
}

// SS of a window: the only number near the value from S and V that ends in the bits that were kept.
//
// 1 / (r r) is off from V by 7.3 units of 2^-24 of it at most, for r and two roundings. V <= n n 127.5^2, so
// that a part n of it is less than 232 for n <= 32768, with less than 1 more for what was cut off. Less than
// 2^8 is enough.
__device__ __forceinline__ int squares_of(int n, float sums, float inverse_root) {
  const double sum = packed_sum(sums), root = inverse_root;
  // Less than any but that of a flat window: V <= n n 127.5^2.
  const bool is_flat = inverse_root < 1.002f / (1 << 16);
  const double variance = is_flat ? 0.0 : double(1 << variance_shift(n)) / (root * root);
  const int near = __double2int_rn((variance + sum * sum) / n);
  return near + (int(__float_as_uint(sums) - (unsigned(near) << SUM_BITS)) >> SUM_BITS);
}

// Waits for all threads that the barrier counts. (Of warps that had different roles before, racecheck does
// not see that they wait for each other at a `barrier.sync`.)
__device__ __forceinline__ void sync_all(unsigned barrier, unsigned& parity) {
  barrier_arrive(barrier);
  barrier_wait(barrier, parity);
  parity ^= 1;
}

// Appends the peaks of a tile to the candidates. Called by WARPS warps, each after it has written its part of
// products or moments; this is number `warp`. The list is empty at first. barrier: counts all their threads,
// not used yet.
template <int WARPS>
__device__ __forceinline__ void report_peaks(const Launch& launch, const Search& search, const Member& member,
                                             const Pattern& pattern, const PeaksTile& tile, PeakList& list, int warp,
                                             unsigned barrier) {
  unsigned parity = 0;
  sync_all(barrier, parity);
  const int lane = threadIdx.x % 32;
  const int rows = quotient(tile.end_y - tile.first_y + WARPS - 1, WARPS);
  const int first_y = tile.first_y + warp * rows, end_y = min(first_y + rows, tile.end_y);
  unsigned possible = first_y < end_y ? possible_peaks(tile, member, launch.min_score, first_y, end_y) : 0;
  // Repeats while peaks are left that the list had no room for.
  for (bool is_more = true; is_more;) {
    unsigned before = __popc(possible);
    add_lanes_before(before);
    unsigned place = lane == 31 && before > 0 ? atomicAdd(&list.count, before) : 0;
    place = __shfl_sync(ALL_LANES, place, 31) + before - __popc(possible);
    for (; possible && place < MAX_LISTED; possible &= possible - 1, place++) {
      const int bit = __ffs(possible) - 1;
      list.at[place] = (4 * lane + bit % 4) | (first_y + bit / 4) << 16;
    }
    sync_all(barrier, parity);
    wait_for_launches_before();
    const int count = min(list.count, MAX_LISTED);
    is_more = list.count > MAX_LISTED;
    // Three positions a warp: nine lanes have the scores around one.
    const int third = quotient(lane, 9), k = lane - 9 * third;
    for (int next = 3 * warp; next < count; next += 3 * WARPS) {
      const bool has_one = third < 3 && next + third < count;
      const unsigned at = list.at[has_one ? next + third : next];
      const int x = at & 0xffff, y = at >> 16, at_x = x + k % 3 - 1, at_y = y + k / 3 - 1;
      double here = -2.0;
      if (at_x >= 0 && at_y >= 0) {
        const Moments moments = tile.moments[moments_slot(at_x, at_y)];
        const bool is_in_region = moments.root == moments.root;
        if (is_in_region) {
          here = score(pattern, packed_sum(moments.sum), squares_of(pattern.n, moments.sum, moments.root),
                       tile.products[products_slot(at_x, at_y)] + tile.slack);
        }
      }
      report_peak(here, 9 * third, k, has_one, tile.left + x, tile.top + y, launch.min_score_exact, search.tag,
                  launch.candidates, launch.capacity, launch.count);
    }
    if (is_more) {
      sync_all(barrier, parity);
      if (warp == 0) list.count = 0;
      sync_all(barrier, parity);
    }
  }
}
