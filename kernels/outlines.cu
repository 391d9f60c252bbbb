// Where outlines of known looks are seen in a shrunken picture: see crates/lockon-core/src/frame/outlines.rs,
// which defines what is an edge, a response and a score. In integers, so these are the places that the host
// finds (crates/lockon-core/src/tracker/outlines.rs). The oracle of both is `find_outline` in
// crates/lockon-core/src/reference/surface.rs; here in the test
// `what_the_device_sees_of_a_picture_is_what_the_definition_sees`. Shared memory: 504 bytes of `match_outlines`, 64 of
// `take_peaks`.
//
// The host keeps a map of responses for each direction, since its loops add bytes. Here the directions seen
// about each pixel are kept, as bits, and a response is looked up from these: the whole map stays in the
// first cache.
#include "shared.h"

// Threads of a block of each kernel.
constexpr int BLOCK = 256;
constexpr int MATCH_BLOCK = 64;

constexpr int DIRECTIONS = 8;
constexpr int LEAST_GRADIENT = 8;
constexpr int OWN = 4;
constexpr int NEXT = 3;
constexpr int SECOND = 1;
constexpr int MOST_EDGES = 63;
constexpr int PLACES = 2;
static_assert(MOST_EDGES <= MATCH_BLOCK, "each thread of a block prepares an edge");

// An edge of an outline: its place from the top left.
struct Edge {
  unsigned short x;
  unsigned short y;
  unsigned direction;
};
static_assert(sizeof(Edge) == 8 && OFFSET(Edge, direction) == 4);

struct Outline {
  // The first of its edges, and their number.
  int first;
  int edges;
  // Places across and down, and rows in a band, of which the best place of each column is kept.
  int columns;
  int rows;
  int band;
  // The first of its bests.
  int bests;
  // None is given within so many columns and rows of a better one.
  int across;
  int down;
};
static_assert(sizeof(Outline) == 32 && OFFSET(Outline, columns) == 8 && OFFSET(Outline, across) == 24);

// A place; its score is 0 if there is none.
struct Peak {
  int score;
  int row;
  int column;
};
static_assert(sizeof(Peak) == 12);

// The direction of a pixel's edge, as a bit; 0 if there is none.
__device__ __forceinline__ unsigned edge(const unsigned char* pixel, int width) {
  const int across = pixel[1] - pixel[-1], down = pixel[width] - pixel[-width];
  const int x = down < 0 ? -across : across, y = abs(down), a = abs(across);
  if (max(a, y) + min(a, y) / 2 < LEAST_GRADIENT) return 0;
  const int steps = (5 * y > a) + (3 * y > 2 * a) + (2 * y > 3 * a) + (y > 5 * a);
  return 1u << (x < 0 ? (DIRECTIONS - steps) % DIRECTIONS : steps);
}

// Writes the directions of the edges in the three by three pixels about each; 0 at the border. Grid
// (width x height / BLOCK), block BLOCK.
extern "C" __global__ void see_edges(const unsigned char* means, int width, int height, unsigned char* near) {
  const int place = blockIdx.x * BLOCK + threadIdx.x;
  if (place >= width * height) return;
  const int x = place % width, y = place / width;
  unsigned seen = 0;
  if (x > 0 && y > 0 && x < width - 1 && y < height - 1) {
    for (int v = max(y - 1, 1); v <= min(y + 1, height - 2); ++v)
      for (int u = max(x - 1, 1); u <= min(x + 1, width - 2); ++u) seen |= edge(means + v * width + u, width);
  }
  near[place] = (unsigned char)seen;
}

// Eight bits, turned so that the first comes to a place from 0 to 7.
__device__ __forceinline__ unsigned turned(unsigned bits, int by) { return (bits << by | bits >> (DIRECTIONS - by)) & 255; }

// Writes the best score of each band of rows and column, and its row in the band: score x 256 + row. Grid
// (columns / MATCH_BLOCK, bands, outlines) of the largest, block MATCH_BLOCK.
extern "C" __global__ void match_outlines(const unsigned char* near, int width, const Outline* outlines,
                                          const Edge* edges, unsigned short* bests) {
  // The offset of each edge from the outline's place, and the directions of each response.
  __shared__ int2 prepared[MOST_EDGES];
  const Outline outline = outlines[blockIdx.z];
  const int band = blockIdx.y, first = band * outline.band;
  // Some blocks have no places where an outline is smaller than the largest. Whole blocks end here: none waits below.
  if (first >= outline.rows || blockIdx.x * MATCH_BLOCK >= outline.columns) return;
  if (threadIdx.x < outline.edges) {
    const Edge edge = edges[outline.first + threadIdx.x];
    const unsigned own = 1u << edge.direction;
    const unsigned next = turned(own, 1) | turned(own, DIRECTIONS - 1);
    const unsigned second = turned(own, 2) | turned(own, DIRECTIONS - 2);
    prepared[threadIdx.x] = make_int2(edge.y * width + edge.x, own | next << 8 | second << 16);
  }
  __syncthreads();
  const int column = blockIdx.x * MATCH_BLOCK + threadIdx.x;
  if (column >= outline.columns) return;
  const int rows = min(outline.band, outline.rows - first);
  unsigned best = 0, at = 0;
  for (int row = 0; row < rows; ++row) {
    const unsigned char* place = near + 2 * (first + row) * width + 2 * column;
    unsigned score = 0;
#pragma unroll 8
    for (int index = 0; index < outline.edges; ++index) {
      const int2 edge = prepared[index];
      // The directions seen, beside each of the three sets.
      const unsigned hits = place[edge.x] * 0x10101u & edge.y;
      score += hits & 255 ? OWN : hits & 0xFF00 ? NEXT : hits ? SECOND : 0;
    }
    if (score > best) best = score, at = row;
  }
  bests[outline.bests + band * outline.columns + column] = (unsigned short)(best << 8 | at);
}

// Writes the best places of each outline. Grid (outlines), block BLOCK.
extern "C" __global__ void take_peaks(const Outline* outlines, const unsigned short* bests, Peak* peaks) {
  __shared__ unsigned long long of_warps[BLOCK / 32];
  const Outline outline = outlines[blockIdx.x];
  const int count = (outline.rows + outline.band - 1) / outline.band * outline.columns;
  Peak taken[PLACES];
#pragma unroll
  for (int turn = 0; turn < PLACES; ++turn) {
    // Higher scores are more; of equal ones, earlier places are.
    unsigned long long most = 0;
    for (int index = threadIdx.x; index < count; index += BLOCK) {
      const unsigned best = bests[outline.bests + index];
      const int row = index / outline.columns * outline.band + (best & 255), column = index % outline.columns;
      bool is_apart = true;
#pragma unroll
      for (int other = 0; other < turn; ++other)
        is_apart &= abs(row - taken[other].row) > outline.down || abs(column - taken[other].column) > outline.across;
      const unsigned long long own = (unsigned long long)(best >> 8) << 32 | (0xFFFFFFFFu - index);
      if (best >> 8 && is_apart) most = max(most, own);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) most = max(most, __shfl_down_sync(0xFFFFFFFF, most, lanes));
    // The one before may still be read.
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
    __syncthreads();
    most = 0;
    for (int warp = 0; warp < BLOCK / 32; ++warp) most = max(most, of_warps[warp]);
    const int index = (int)(0xFFFFFFFFu - (unsigned)most);
    // None is near what does not exist.
    taken[turn] = {0, -1000000, -1000000};
    if (most) {
      const int row = index / outline.columns * outline.band + (bests[outline.bests + index] & 255);
      taken[turn] = {(int)(most >> 32), row, index % outline.columns};
    }
    if (threadIdx.x == 0) peaks[blockIdx.x * PLACES + turn] = taken[turn];
  }
}
