// target: compute_75, compute_80, compute_90
//
// Objects of a mask: cleaning, connected components, and the integers that are counted of each.
//
// A mask is packed, 32 pixels of a row a word; the bits of objects are set, those behind a row's end are not.
// A fragment is a maximal run of bits within a word. A word has 16 at most: number k of word i is the node
// 16 i + k. So nodes are numbered in the order of their first pixels, and nothing has to be counted
// before they can be joined.
//
// A tile is a column of 32 words, one for each lane of a warp. The warp floods the tile's components one
// after the other, all rows at once, and counts their pixels: a part each, which is known by its first node.
// The nodes of a part have that as their label. Then parts are joined across the borders of tiles, by
// union-find over their first nodes. Components are numbered in the order of the least of these, which is
// that of their first pixels.
//
// Labels are nodes with their bits reversed, and of two joined nodes that with the lesser label becomes the
// root: of nodes in a row, as along a line that passes many tiles, every second one, of these every second
// one again, and so on. If it were that which comes first, a line would become a chain as long as itself.
//
//   pack      bytes become bits
//   across, down      what is left if every square of 2 r + 1 pixels is eroded, or of the background instead
//   invert    the background, whose components are holes or reach the border
//   label_tiles       parts, their labels and their sums
//   join_tiles        joins what touches across the borders of tiles
//   settle    the label of each part is a root; each root has the first node of its component
//   number    components are numbered, and each has sums of nothing
//   tally     adds the sums of parts to those of their components
//   corners   with 4 neighbours: pairs of a component's pixels that only meet at a corner
//   publish_objects   passes the sums to the host
//   border, fill      components of the background that do not reach the border become parts of objects
//   unpack    bits become bytes
//
// Union by atomic minimum after Y. Komura, "GPU-based cluster-labeling algorithm without the use of
// conventional iteration", 2015; tiles, then their borders, after S. Allegretti, F. Bolelli, C. Grana,
// "Optimized Block-Based Algorithms to Label Connected Components on GPUs", 2019. The Euler number is that of
// cells: for objects with 4 neighbours pixels less pairs that share an edge and squares of four, with 8
// neighbours pixels less pairs and triples and fours that lie in a square.
//
// All numbers are integers, and all are added by atomics: neither order nor grid changes them.
//
// Grid: one thread a word, rounded up to blocks of 256 or to tiles, where nothing else is said. Oracle:
// crates/lockon-core/src/reference/objects.rs, objects_are_the_references_on_2000_random_masks
// (crates/lockon-cuda/src/objects.rs).
#include "launches.cuh"
#include "packed.cuh"
#include "window_sums.cuh"

// Threads of a block, of all kernels.
constexpr int OBJECT_THREADS = 256;

// Most fragments of a word.
constexpr int FRAGMENTS = 16;

// Rows of a tile, which is a word wide.
constexpr int TILE_ROWS = 32;

// Tiles of a block: one for each warp.
constexpr int TILES_OF_BLOCK = 4;
constexpr int TILE_THREADS = 32 * TILES_OF_BLOCK;

constexpr unsigned NONE = ~0u;

// The integers of a component: `Sums` of crates/lockon-core/src/backend/objects.rs.
struct Sums {
  unsigned long long x, y, xx, xy, yy, luma;
  unsigned area, edges, corners;
  int euler;
  unsigned left, right, top, bottom;
  unsigned min_luma, max_luma;
};
static_assert(sizeof(Sums) == 88 && OFFSET(Sums, area) == 48 && OFFSET(Sums, min_luma) == 80, "as the host reads it");

// A packed mask.
struct Bits {
  const unsigned* words;
  int per_row, rows;
  int width;  // in pixels

  // Rows and columns outside have none.
  __device__ __forceinline__ unsigned at(int word, int y) const {
    return unsigned(word) < unsigned(per_row) && unsigned(y) < unsigned(rows) ? words[size_t(y) * per_row + word] : 0;
  }

  // The bits of a word that lie in the picture.
  __device__ __forceinline__ unsigned inside(int word) const {
    const int pixels = width - 32 * word;
    return pixels >= 32 ? ~0u : ~(~0u << pixels);
  }
};
static_assert(sizeof(Bits) == 24 && OFFSET(Bits, per_row) == 8 && OFFSET(Bits, width) == 16, "as the host fills it");

// Bits that begin a fragment.
__device__ __forceinline__ unsigned begins(unsigned bits) { return bits & ~(bits << 1); }

// The lowest fragment of some bits, which are not 0.
__device__ __forceinline__ unsigned lowest(unsigned bits) { return bits & ~(bits + (bits & -bits)); }

// A word with the words around it.
struct Around {
  unsigned here, before, after;  // of its row
  unsigned above, above_before, above_after;

  // At each pixel the bit of the pixel to its left, and to its right.
  __device__ __forceinline__ unsigned left() const { return __funnelshift_l(before, here, 1); }
  __device__ __forceinline__ unsigned right() const { return __funnelshift_r(here, after, 1); }
  __device__ __forceinline__ unsigned above_left() const { return __funnelshift_l(above_before, above, 1); }
  __device__ __forceinline__ unsigned above_right() const { return __funnelshift_r(above, above_after, 1); }
};

__device__ __forceinline__ Around around(const Bits& bits, int word, int y) {
  return {bits.at(word, y),     bits.at(word - 1, y),     bits.at(word + 1, y),
          bits.at(word, y - 1), bits.at(word - 1, y - 1), bits.at(word + 1, y - 1)};
}

// The thread's word; false if there is none.
__device__ __forceinline__ bool my_word(const Bits& bits, int& word, int& y) {
  const int index = blockIdx.x * OBJECT_THREADS + threadIdx.x;
  y = index / bits.per_row;
  word = index - y * bits.per_row;
  return y < bits.rows;
}

// The first node of a word.
__device__ __forceinline__ unsigned node_of(const Bits& bits, int word, int y) {
  return (unsigned(y) * bits.per_row + word) * FRAGMENTS;
}

// The node of a bit of a word whose first node is given, and the word's last node.
__device__ __forceinline__ unsigned node_at(unsigned first, unsigned of_word, unsigned bit) {
  return first + __popc(begins(of_word) & (bit | (bit - 1))) - 1;
}
__device__ __forceinline__ unsigned last_node(unsigned first, unsigned of_word) {
  return first + __popc(begins(of_word)) - 1;
}

// The label of a node, and the node of a label.
__device__ __forceinline__ unsigned reversed(unsigned value) { return __brev(value); }

// The node's root, if nothing is being joined.
__device__ __forceinline__ unsigned root_of(const unsigned* labels, unsigned node) {
  for (;;) {
    const unsigned next = reversed(labels[node]);
    if (next == node) return node;
    node = next;
  }
}

// The node's root by now, while others may be joining it. Each node on the way comes to point to the one
// after next: what another thread writes there meanwhile points to something that it joins with that one.
__device__ __forceinline__ unsigned root_by_now(volatile unsigned* labels, unsigned node) {
  unsigned next = reversed(labels[node]);
  while (next != node) {
    const unsigned label = labels[next], after = reversed(label);
    if (after == next) return next;
    labels[node] = label;
    node = after;
    next = reversed(labels[node]);
  }
  return node;
}

// Joins two nodes, and marks the one that becomes the other's root.
__device__ __forceinline__ void join_nodes(unsigned* labels, unsigned char* is_joined, unsigned a, unsigned b) {
  for (;;) {
    a = root_by_now(labels, a);
    b = root_by_now(labels, b);
    if (a == b) return;
    const unsigned higher = max(reversed(a), reversed(b)), lower = min(reversed(a), reversed(b));
    const unsigned was = atomicMin(labels + reversed(higher), lower);
    is_joined[reversed(lower)] = 1;
    if (was == higher) return;
    // Another thread has joined it meanwhile.
    a = reversed(was);
    b = reversed(lower);
  }
}

// Sums of nothing, of a component whose first pixel is in row y.
__device__ __forceinline__ Sums nothing(int y) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ~0u, 0, unsigned(y), unsigned(y), 255, 0};
}

// The sums of a part, with columns and rows counted from the tile's first: all fit in 32 bits, many in half
// of that. The last is its first node.
enum Field { X_Y, XX, XY, YY, AREA_EDGES, CORNERS_EULER, LUMA, LEAST_MOST, BOX, FIRST, FIELDS = 12 };
static_assert(32 * TILE_ROWS * 31 < 1 << 16 && FIELDS % 4 == 0, "sums of columns and of rows share a word");

// The first parts of a tile have their places; the others take theirs by so many at once, where there are
// places left.
constexpr int PLACES = 8;

struct Parts {
  unsigned* fields;
  unsigned* more;     // taken places behind those of the tiles
  unsigned capacity;  // in all
  unsigned unused;
};
static_assert(sizeof(Parts) == 24 && OFFSET(Parts, more) == 8 && OFFSET(Parts, capacity) == 16, "as the host fills it");

// Over all lanes of a warp.
__device__ __forceinline__ unsigned sum_of(unsigned value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(ALL_LANES, value);
#else
  for (int step = 1; step < 32; step *= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
  return value;
#endif
}
__device__ __forceinline__ unsigned most_of(unsigned value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(ALL_LANES, value);
#else
  for (int step = 1; step < 32; step *= 2) value = max(value, __shfl_xor_sync(ALL_LANES, value, step));
  return value;
#endif
}
__device__ __forceinline__ unsigned least_of(unsigned value) { return ~most_of(~value); }
__device__ __forceinline__ unsigned any_of(unsigned bits) {
#if __CUDA_ARCH__ >= 800
  return __reduce_or_sync(ALL_LANES, bits);
#else
  for (int step = 1; step < 32; step *= 2) bits |= __shfl_xor_sync(ALL_LANES, bits, step);
  return bits;
#endif
}

// The sum over all lanes of numbers below 2^54: in two pieces, as a warp's sum of the lower ones fits in 32
// bits.
__device__ __forceinline__ unsigned long long sum_of(unsigned long long value) {
  constexpr int LOWER = 27;
  const unsigned long long higher = sum_of(unsigned(value >> LOWER));
  return (higher << LOWER) + sum_of(unsigned(value) & ((1u << LOWER) - 1));
}

// Adds to a component's sums.
__device__ __forceinline__ void add_to(Sums* to, const Sums& part) {
  atomicAdd(&to->x, part.x);
  atomicAdd(&to->y, part.y);
  atomicAdd(&to->xx, part.xx);
  atomicAdd(&to->xy, part.xy);
  atomicAdd(&to->yy, part.yy);
  atomicAdd(&to->luma, part.luma);
  atomicAdd(&to->area, part.area);
  atomicAdd(&to->edges, part.edges);
  atomicAdd(&to->corners, part.corners);
  atomicAdd(&to->euler, part.euler);
  atomicMin(&to->left, part.left);
  atomicMax(&to->right, part.right);
  atomicMax(&to->bottom, part.bottom);
  atomicMin(&to->min_luma, part.min_luma);
  atomicMax(&to->max_luma, part.max_luma);
}

// The byte of each of four bits: 0 or 255.
__device__ __forceinline__ unsigned bytes_of(unsigned four_bits) {
  return ((four_bits * 0x00204081u) & 0x01010101u) * 255u;
}

extern "C" {

// Bits of bytes of 128 or more, or with `is_black` of the others; no more places of parts are taken. One
// thread four pixels: eight neighbouring threads make a word. Grid: (rows, 8 words of a row /
// OBJECT_THREADS), rounded up.
__global__ void __launch_bounds__(OBJECT_THREADS)
    pack(const unsigned char* mask, int pitch, int width, int is_black, unsigned* words, int per_row, unsigned* more) {
  let_next_begin();
  wait_for_launches_before();
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *more = 0;
  const int index = blockIdx.y * OBJECT_THREADS + threadIdx.x, y = blockIdx.x, x = 4 * index;
  const unsigned char* from = mask + size_t(y) * pitch + x;
  unsigned four = 0;
  if (x + 4 <= width && (reinterpret_cast<size_t>(from) & 3) == 0) {
    four = *reinterpret_cast<const unsigned*>(from);
  } else {
    for (int i = 0; i < 4 && x + i < width; i++) four |= unsigned(from[i]) << 8 * i;
  }
  // The highest bits of four bytes, side by side.
  unsigned bits = ((four >> 7 & 0x01010101u) * 0x10204080u) >> 28;
  if (is_black) bits = ~bits & 15;
  bits &= x + 4 <= width ? 15 : x >= width ? 0 : (1u << (width - x)) - 1;
  bits <<= 4 * (threadIdx.x % 8);
  for (int step = 1; step < 8; step *= 2) bits |= __shfl_xor_sync(ALL_LANES, bits, step);
  if (threadIdx.x % 8 == 0 && index / 8 < per_row) words[size_t(y) * per_row + index / 8] = bits;
}

// Erodes the set bits by `radius` pixels along the rows, or with `flip` the others; what lies outside of the
// picture is ignored. radius is 127 at most.
__global__ void __launch_bounds__(OBJECT_THREADS) across(Bits bits, int radius, int flip, unsigned* to) {
  let_next_begin();
  wait_for_launches_before();
  int word, y;
  if (!my_word(bits, word, y)) return;
  const unsigned flipped = flip ? ~0u : 0;
  // Set where the picture does not reach, too.
  const auto set = [&](int at) {
    if (unsigned(at) >= unsigned(bits.per_row)) return ~0u;
    return (bits.at(at, y) ^ flipped) | ~bits.inside(at);
  };
  unsigned kept = set(word);
  for (int shift = 1; shift <= radius; shift++) {
    const int whole = shift / 32, part = shift % 32;
    kept &= __funnelshift_l(set(word - whole - 1), set(word - whole), part);
    kept &= part ? __funnelshift_r(set(word + whole), set(word + whole + 1), part) : set(word + whole);
  }
  to[size_t(y) * bits.per_row + word] = (kept ^ flipped) & bits.inside(word);
}

// As `across`, along the columns.
__global__ void __launch_bounds__(OBJECT_THREADS) down(Bits bits, int radius, int flip, unsigned* to) {
  let_next_begin();
  wait_for_launches_before();
  int word, y;
  if (!my_word(bits, word, y)) return;
  const unsigned flipped = flip ? ~0u : 0;
  unsigned kept = ~0u;
  for (int row = max(y - radius, 0); row <= min(y + radius, bits.rows - 1); row++) kept &= bits.at(word, row) ^ flipped;
  to[size_t(y) * bits.per_row + word] = (kept ^ flipped) & bits.inside(word);
}

// The bits that are not set.
__global__ void __launch_bounds__(OBJECT_THREADS) invert(Bits bits, unsigned* to) {
  let_next_begin();
  wait_for_launches_before();
  int word, y;
  if (my_word(bits, word, y)) to[size_t(y) * bits.per_row + word] = ~bits.at(word, y) & bits.inside(word);
}

// Finds the parts of each tile, labels their nodes, and marks in `firsts` the fragments that are a part's
// first. With luma, whose rows are `pitch` bytes apart, begin at multiples of 16 and have room for all words,
// counts the parts. Clears what `number` counts in. Grid: blocks of tiles of a row, rows of tiles.
__global__ void __launch_bounds__(TILE_THREADS)
    label_tiles(Bits bits, int is_eight, unsigned* labels, unsigned short* firsts, unsigned* leasts, unsigned char* is_joined,
                unsigned* roots_of_blocks, const unsigned char* luma, int pitch, Parts parts) {
  let_next_begin();
  wait_for_launches_before();
  const unsigned block = blockIdx.y * gridDim.x + blockIdx.x, blocks = (bits.rows * bits.per_row - 1) / OBJECT_THREADS + 1;
  for (unsigned i = block * blockDim.x + threadIdx.x; i < blocks; i += gridDim.x * gridDim.y * blockDim.x) {
    roots_of_blocks[i] = 0;
  }
  const int row = threadIdx.x % 32, word = blockIdx.x * TILES_OF_BLOCK + threadIdx.x / 32,
            y = blockIdx.y * TILE_ROWS + row;
  if (word >= bits.per_row) return;
  const Around words = around(bits, word, y);
  const unsigned here = words.here, starts = begins(here), node = node_of(bits, word, y);
  uint4 pixels[2] = {};
  if (luma && here) {
    const uint4* from = reinterpret_cast<const uint4*>(luma + size_t(y) * pitch + 32 * word);
    pixels[0] = from[0], pixels[1] = from[1];
  }
  const unsigned of_four[8] = {pixels[0].x, pixels[0].y, pixels[0].z, pixels[0].w,
                               pixels[1].x, pixels[1].y, pixels[1].z, pixels[1].w};
  const unsigned left = words.left(), right = words.right(), above = words.above, above_left = words.above_left(),
                 above_right = words.above_right();
  // A pixel, the one to its left and those above both are a square: all four are set, or three. Where only
  // the pixel itself is not, the square counts for its left neighbour.
  const unsigned fours = left & above_left & above;
  const unsigned threes = (left & (above_left ^ above)) | (~left & above_left & above);
  const unsigned threes_of_left = above & above_right & ~right;
  // Pairs at a corner that are in one component. With 4 neighbours those are left to `corners` that no pixel
  // joins.
  const unsigned pairs_left = is_eight ? above_left : above_left & (above | left);
  const unsigned pairs_right = is_eight ? above_right : above_right & (above | right);

  // Rows of which all bits from `step` rows above or below on are set: by them a part grows along columns.
  unsigned from_above[5], from_below[5];
  unsigned set_above = row > 0 ? here : 0, set_below = row < TILE_ROWS - 1 ? here : 0;
#pragma unroll
  for (int i = 0; i < 5; i++) {
    from_above[i] = set_above, from_below[i] = set_below;
    set_above &= __shfl_up_sync(ALL_LANES, set_above, 1 << i) & (row >= 1 << i ? ~0u : 0);
    set_below &= __shfl_down_sync(ALL_LANES, set_below, 1 << i) & (row < TILE_ROWS - (1 << i) ? ~0u : 0);
  }

  const unsigned tile = blockIdx.y * bits.per_row + word, tiles = gridDim.y * bits.per_row;
  // The next place, and how many there are from it on.
  unsigned place = tile * PLACES, places = PLACES, is_first = 0;
  for (unsigned rest = here;;) {
    const unsigned rows = __ballot_sync(ALL_LANES, rest);
    if (!rows) break;
    const int first_row = __ffs(rows) - 1;
    // The part's first fragment, and what touches it, and so on.
    unsigned mine = row == first_row ? lowest(rest) : 0;
    for (int turn = 0;; turn++) {
      unsigned grown = mine;
      if (turn >= 3) {
        // It is long: along columns, as far as they go.
        unsigned down = mine, up = mine;
#pragma unroll
        for (int i = 0; i < 5; i++) {
          down |= __shfl_up_sync(ALL_LANES, down, 1 << i) & from_above[i];
          up |= __shfl_down_sync(ALL_LANES, up, 1 << i) & from_below[i];
        }
        grown = down | up;
      }
      unsigned beside = __shfl_up_sync(ALL_LANES, grown, 1) & (row > 0 ? ~0u : 0);
      beside |= __shfl_down_sync(ALL_LANES, grown, 1) & (row < TILE_ROWS - 1 ? ~0u : 0);
      if (is_eight) beside |= beside << 1 | beside >> 1;
      grown |= beside & here;
      // Along the row: a carry runs through a fragment from its lowest bit here to its end.
      grown |= here & ~(here + grown);
      const unsigned turned = __brev(here), back = __brev(grown);
      grown |= __brev(turned & ~(turned + back));
      const bool is_grown = grown != mine;
      mine = grown;
      if (!__any_sync(ALL_LANES, is_grown)) break;
    }
    rest &= ~mine;

    const unsigned first = __shfl_sync(ALL_LANES, node + __popc(starts & ((mine & -mine) - 1)), first_row);
    for (unsigned left_over = starts & mine; left_over; left_over &= left_over - 1) {
      const unsigned k = __popc(starts & ((left_over & -left_over) - 1));
      labels[node + k] = reversed(first);
    }
    if (row == first_row) {
      is_first |= 1u << (first - node);
      leasts[first] = first;
      is_joined[first] = 0;
    }
    if (!luma) continue;

    const unsigned n = __popc(mine), first_bit = __ffs(mine) - 1;
    // The sum of the positions of bits in the word, and of their squares.
    unsigned x = 0, xx = 0;
    if (__any_sync(ALL_LANES, __popc(starts & mine) > 1)) {
      // By the digits of the positions.
      constexpr unsigned HAS[5] = {0xaaaaaaaau, 0xccccccccu, 0xf0f0f0f0u, 0xff00ff00u, 0xffff0000u};
#pragma unroll
      for (int i = 0; i < 5; i++) {
        const unsigned digit = __popc(mine & HAS[i]);
        x += digit << i;
        xx += digit << 2 * i;
#pragma unroll
        for (int j = 0; j < i; j++) xx += __popc(mine & HAS[i] & HAS[j]) << (i + j + 1);
      }
    } else if (mine) {
      const unsigned pairs = n * (n - 1) / 2;
      x = n * first_bit + pairs;
      xx = first_bit * (x + pairs) + pairs * (2 * n - 1) / 3;
    }
    const unsigned edges = __popc(mine & left) + __popc(mine & above);
    const unsigned corners = __popc(mine & pairs_left) + __popc(mine & pairs_right);
    const unsigned euler = is_eight ? n - edges - corners + __popc(mine & threes) + __popc(mine & threes_of_left) + 3 * __popc(mine & fours)
                                    : n - edges + __popc(mine & fours);
    const unsigned columns = any_of(mine), all_rows = __ballot_sync(ALL_LANES, mine);
    // Of the least and the greatest luma, two numbers of 16 bits: for even and odd columns together.
    unsigned sum = 0, least = ~0u, most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if (!(columns >> 4 * i & 15)) continue;
      const unsigned bytes = bytes_of(mine >> 4 * i & 15), luma_here = of_four[i] & bytes;
      sum = dot4(luma_here, 0x01010101u, sum);
      constexpr unsigned EVEN = 0x00ff00ffu;
      most = __vmaxu2(most, __vmaxu2(luma_here & EVEN, luma_here >> 8 & EVEN));
      const unsigned high = of_four[i] | ~bytes;
      least = __vminu2(least, __vminu2(high & EVEN, high >> 8 & EVEN));
    }
    const unsigned fields[FIELDS] = {
        sum_of(x | n * row << 16),
        sum_of(xx),
        sum_of(x * row),
        sum_of(n * row * row),
        sum_of(n | edges << 16),
        sum_of(corners + (euler << 16)),
        sum_of(sum),
        least_of(min(least & 0xffff, least >> 16)) | most_of(max(most & 0xffff, most >> 16)) << 8,
        unsigned(__ffs(columns) - 1) | unsigned(31 - __clz(columns)) << 8 | unsigned(31 - __clz(all_rows)) << 16,
        first,
    };
    if (places == 0) {
      if (row == 0) place = tiles * PLACES + atomicAdd(parts.more, PLACES);
      place = __shfl_sync(ALL_LANES, place, 0);
      places = PLACES;
    }
    if (row == 0 && place < parts.capacity) {
      uint4* to = reinterpret_cast<uint4*>(parts.fields + size_t(place) * FIELDS);
#pragma unroll
      for (int i = 0; i < FIELDS; i += 4) *to++ = {fields[i], fields[i + 1], fields[i + 2], fields[i + 3]};
    }
    place++, places--;
  }
  if (y < bits.rows) firsts[y * bits.per_row + word] = is_first;
  // Places without a part.
  if (luma && row < places && place + row < parts.capacity) parts.fields[size_t(place + row) * FIELDS + FIRST] = NONE;
}

// Joins the parts of a tile with those that they touch in the tiles before and above. A warp has the pairs of
// one border, a lane one of them: where two pixels touch at a corner only, and none beside them joins them.
// Grid: blocks of tiles of a row, rows of tiles, the borders at the left and at the top.
__global__ void __launch_bounds__(TILE_THREADS) join_tiles(Bits bits, int is_eight, unsigned* labels, unsigned char* is_joined) {
  let_next_begin();
  wait_for_launches_before();
  const int lane = threadIdx.x % 32, word = blockIdx.x * TILES_OF_BLOCK + threadIdx.x / 32, y0 = blockIdx.y * TILE_ROWS;
  const bool is_top = blockIdx.z;
  if (word >= bits.per_row) return;
  const int y = is_top ? y0 : y0 + lane;
  const unsigned here = bits.at(word, y), above = bits.at(word, y - 1);
  unsigned a = NONE, b = NONE;
  if (is_top) {
    // The pixel of the lane's bit and the one above it, and those to the left of both.
    const bool has = here >> lane & 1, has_above = above >> lane & 1;
    const bool has_left = lane && here >> (lane - 1) & 1, has_above_left = lane && above >> (lane - 1) & 1;
    const unsigned bit = 1u << lane;
    const bool falls = is_eight && has && has_above_left && !has_left && !has_above;
    const bool rises = is_eight && has_left && has_above && !has && !has_above_left;
    if ((has && has_above) || falls || rises) {
      a = node_at(node_of(bits, word, y), here, rises ? bit >> 1 : bit);
      b = node_at(node_of(bits, word, y - 1), above, falls ? bit >> 1 : bit);
    }
  } else {
    // The pixel at the left end of the lane's row and the one before it, and those above both.
    const unsigned before = bits.at(word - 1, y), above_before = bits.at(word - 1, y - 1);
    const bool has = here & 1, has_above = above & 1, has_left = before >> 31, has_above_left = above_before >> 31;
    const bool falls = is_eight && has && has_above_left && !has_left && !has_above;
    const bool rises = is_eight && has_left && has_above && !has && !has_above_left;
    if ((has && has_left) || falls || rises) {
      a = node_of(bits, word, rises ? y - 1 : y);
      const unsigned of_before = falls ? above_before : before;
      b = last_node(node_of(bits, word - 1, falls ? y - 1 : y), of_before);
    }
  }
  if (a != NONE) a = reversed(labels[a]), b = reversed(labels[b]);
  // Once for all lanes that have the same pair.
  const unsigned same = __match_any_sync(ALL_LANES, (unsigned long long)a << 32 | b);
  if (a != NONE && lane == __ffs(same) - 1) join_nodes(labels, is_joined, a, b);
}

// Makes the label of each part a root, from which others may have to take a step more, and finds the least
// node of each root.
__global__ void __launch_bounds__(OBJECT_THREADS) settle(Bits bits, unsigned* labels, const unsigned short* firsts, unsigned* leasts) {
  let_next_begin();
  wait_for_launches_before();
  int word, y;
  const bool is_there = my_word(bits, word, y);
  const unsigned node = is_there ? node_of(bits, word, y) : 0;
  for (unsigned left = is_there ? firsts[y * bits.per_row + word] : 0; __any_sync(ALL_LANES, left); left &= left - 1) {
    const unsigned first = node + __ffs(left) - 1, root = left ? root_by_now(labels, first) : NONE;
    if (left) labels[first] = reversed(root);
    // The first lane of those with the same root has the least node.
    const unsigned same = __match_any_sync(ALL_LANES, root);
    const bool is_least = threadIdx.x % 32 == __ffs(same) - 1;
    if (left && is_least && *(volatile unsigned*)(leasts + root) > first) atomicMin(leasts + root, first);
  }
}

// Numbers the components in the order of their least nodes, and clears the sums of those that have several
// parts and that there is room for. `count` gets how many there are, and how many places for parts were taken
// behind those of the tiles. Each block tells the others how many it has: in `roots_of_blocks`, which is 0
// before. It waits for the blocks before it, which all devices so far begin before it: CUDA does not promise
// that.
__global__ void __launch_bounds__(OBJECT_THREADS)
    number(Bits bits, const unsigned* labels, const unsigned short* firsts, const unsigned* leasts, const unsigned char* is_joined,
           unsigned* roots_of_blocks, unsigned* numbers, Sums* sums, unsigned capacity, unsigned* more, unsigned* count) {
  let_next_begin();
  wait_for_launches_before();
  constexpr unsigned IS_TOLD = 1u << 31;
  __shared__ unsigned of_warps[OBJECT_THREADS / 32];
  __shared__ unsigned base;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) base = 0;

  int word, y;
  const bool is_there = my_word(bits, word, y);
  const unsigned node = is_there ? node_of(bits, word, y) : 0;
  unsigned roots = 0;
  for (unsigned left = is_there ? firsts[y * bits.per_row + word] : 0; left; left &= left - 1) {
    const unsigned first = node + __ffs(left) - 1;
    if (leasts[root_of(labels, first)] == first) roots |= left & -left;
  }
  unsigned up_to = __popc(roots);
  for (int step = 1; step < 32; step *= 2) {
    const unsigned other = __shfl_up_sync(ALL_LANES, up_to, step);
    if (lane >= step) up_to += other;
  }
  if (lane == 31) of_warps[warp] = up_to;
  __syncthreads();
  unsigned index = up_to - __popc(roots);
  for (int i = 0; i < warp; i++) index += of_warps[i];
  volatile unsigned* told = roots_of_blocks;
  if (threadIdx.x == OBJECT_THREADS - 1) told[blockIdx.x] = (index + __popc(roots)) | IS_TOLD;
  unsigned before = 0;
  for (unsigned block = threadIdx.x; block < blockIdx.x; block += OBJECT_THREADS) {
    unsigned roots_of_block;
    do roots_of_block = told[block];
    while (!(roots_of_block & IS_TOLD));
    before += roots_of_block & ~IS_TOLD;
  }
  if (before) atomicAdd(&base, before);
  __syncthreads();
  index += base;
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == OBJECT_THREADS - 1) {
    count[0] = index + __popc(roots);
    count[1] = *more;
  }
  for (; roots; roots &= roots - 1, index++) {
    const unsigned root = root_of(labels, node + __ffs(roots) - 1);
    numbers[root] = index;
    if (index < capacity && is_joined[root]) sums[index] = nothing(y);
  }
}

// Adds the sums of parts to those of their components. Grid: any.
__global__ void __launch_bounds__(OBJECT_THREADS) tally(Bits bits, const unsigned* labels, const unsigned char* is_joined,
                                                        const unsigned* numbers, Parts parts, Sums* sums, unsigned capacity) {
  let_next_begin();
  wait_for_launches_before();
  const unsigned tiles = ((bits.rows - 1) / TILE_ROWS + 1) * bits.per_row;
  const unsigned all = min(tiles * PLACES + *parts.more, parts.capacity);
  // All lanes of a warp go on while one has a part: they add together.
  for (unsigned at = blockIdx.x * OBJECT_THREADS + threadIdx.x; at - threadIdx.x % 32 < all; at += gridDim.x * OBJECT_THREADS) {
    const uint4* from = reinterpret_cast<const uint4*>(parts.fields + size_t(min(at, all - 1)) * FIELDS);
    const uint4 last = from[2];
    const unsigned first = at < all ? last.y : NONE;
    unsigned component = NONE;
    bool is_alone = false;
    if (first != NONE) {
      const unsigned root = root_of(labels, first);
      component = numbers[root];
      is_alone = root == first && !is_joined[root];
      if (component >= capacity) component = NONE;
    }
    Sums part = nothing(0);
    if (component != NONE) {
      const uint4 a = from[0], b = from[1];
      const unsigned index = first / FRAGMENTS, y = index / bits.per_row, x0 = 32 * (index - y * bits.per_row),
                     y0 = y / TILE_ROWS * TILE_ROWS;
      const unsigned long long n = b.x & 0xffff, x = a.x & 0xffff, of_rows = a.x >> 16;
      part.x = x + n * x0;
      part.y = of_rows + n * y0;
      part.xx = a.y + 2 * x * x0 + n * x0 * x0;
      part.xy = a.z + x * y0 + of_rows * x0 + n * x0 * y0;
      part.yy = a.w + 2 * of_rows * y0 + n * y0 * y0;
      part.luma = b.z;
      part.area = unsigned(n);
      part.edges = b.x >> 16;
      part.corners = b.y & 0xffff;
      part.euler = int(b.y) >> 16;
      part.left = x0 + (last.x & 255);
      part.right = x0 + (last.x >> 8 & 255);
      part.top = y;
      part.bottom = y0 + (last.x >> 16);
      part.min_luma = b.w & 255;
      part.max_luma = b.w >> 8;
    }
    if (is_alone && component != NONE) {
      sums[component] = part;
      component = NONE;
    }
    // Lanes that have the first component add theirs together.
    const unsigned least = least_of(component);
    const bool is_in = component == least;
    const unsigned group = __ballot_sync(ALL_LANES, is_in);
    if (least != NONE && __popc(group) > 2) {
      if (!is_in && component != NONE) add_to(sums + component, part);
      if (!is_in) part = nothing(0);
      Sums whole;
      whole.x = sum_of(part.x);
      whole.y = sum_of(part.y);
      whole.xx = sum_of(part.xx);
      whole.xy = sum_of(part.xy);
      whole.yy = sum_of(part.yy);
      whole.luma = sum_of(part.luma);
      whole.area = sum_of(part.area);
      whole.edges = sum_of(part.edges);
      whole.corners = sum_of(part.corners);
      whole.euler = int(sum_of(unsigned(part.euler)));
      whole.left = least_of(part.left);
      whole.right = most_of(part.right);
      whole.bottom = most_of(part.bottom);
      whole.min_luma = least_of(part.min_luma);
      whole.max_luma = most_of(part.max_luma);
      if (threadIdx.x % 32 == 0) add_to(sums + least, whole);
      continue;
    }
    if (component != NONE) add_to(sums + component, part);
  }
}

// The component of a bit of a word.
__device__ __forceinline__ unsigned component_of(const Bits& bits, const unsigned* labels, const unsigned* numbers, int word, int y,
                                                 unsigned bit) {
  return numbers[root_of(labels, node_at(node_of(bits, word, y), bits.at(word, y), bit))];
}

// With 4 neighbours: counts pairs of pixels that share only a corner, with no pixel beside both, where they
// are in one component all the same.
__global__ void __launch_bounds__(OBJECT_THREADS)
    corners(Bits bits, const unsigned* labels, const unsigned* numbers, Sums* sums, unsigned capacity) {
  let_next_begin();
  wait_for_launches_before();
  int word, y;
  if (!my_word(bits, word, y)) return;
  const Around words = around(bits, word, y);
  const unsigned alone = words.here & ~words.above;
  const auto count = [&](unsigned pixels, int step) {
    for (; pixels; pixels &= pixels - 1) {
      const int x = 32 * word + __ffs(pixels) - 1 + step, of_word = x >> 5;
      const unsigned its = component_of(bits, labels, numbers, word, y, pixels & -pixels);
      if (component_of(bits, labels, numbers, of_word, y - 1, 1u << (x & 31)) == its && its < capacity) {
        atomicAdd(&sums[its].corners, 1u);
      }
    }
  };
  count(alone & words.above_left() & ~words.left(), -1);
  count(alone & words.above_right() & ~words.right(), 1);
}

// Copies how many components and places there are, and the sums of the first components, as many as there is
// room for on both sides, to page-locked memory of the host's. A copy by the copy engine would need their
// number before. Grid: any.
__global__ void __launch_bounds__(OBJECT_THREADS)
    publish_objects(const unsigned* count, const Sums* sums, unsigned* host_count, Sums* host_sums, unsigned room) {
  constexpr unsigned WORDS = sizeof(Sums) / sizeof(unsigned long long);
  const unsigned found = *count, words = min(found, room) * WORDS;
  const auto* from = reinterpret_cast<const unsigned long long*>(sums);
  auto* to = reinterpret_cast<unsigned long long*>(host_sums);
  for (unsigned i = blockIdx.x * OBJECT_THREADS + threadIdx.x; i < words; i += gridDim.x * OBJECT_THREADS) to[i] = from[i];
  if (blockIdx.x == 0 && threadIdx.x < 2) host_count[threadIdx.x] = count[threadIdx.x];
}

// Marks the roots of components that reach the border of the picture. All marks are 0 before.
__global__ void __launch_bounds__(OBJECT_THREADS) border(Bits bits, const unsigned* labels, unsigned* marks) {
  let_next_begin();
  wait_for_launches_before();
  int word, y;
  if (!my_word(bits, word, y)) return;
  const bool is_end = y == 0 || y == bits.rows - 1;
  const unsigned last_bit = word == bits.per_row - 1 ? 1u << ((bits.width - 1) & 31) : 0;
  unsigned node = node_of(bits, word, y);
  for (unsigned left = bits.at(word, y); left; node++) {
    const unsigned mine = lowest(left);
    left &= ~mine;
    if (is_end || (word == 0 && (mine & 1)) || (mine & last_bit)) marks[root_of(labels, node)] = 1;
  }
}

// Adds to a mask the components of its background whose roots are not marked.
__global__ void __launch_bounds__(OBJECT_THREADS) fill(Bits background, const unsigned* labels, const unsigned* marks, unsigned* to) {
  let_next_begin();
  wait_for_launches_before();
  int word, y;
  if (!my_word(background, word, y)) return;
  unsigned node = node_of(background, word, y), filled = 0;
  for (unsigned left = background.at(word, y); left; node++) {
    const unsigned mine = lowest(left);
    left &= ~mine;
    if (!marks[root_of(labels, node)]) filled |= mine;
  }
  if (filled) to[size_t(y) * background.per_row + word] |= filled;
}

// Bytes of bits: 255 where they are set, or with `is_black` where they are not. One thread four pixels. Grid:
// as `pack`.
__global__ void __launch_bounds__(OBJECT_THREADS) unpack(Bits bits, int is_black, unsigned char* mask, int pitch) {
  let_next_begin();
  wait_for_launches_before();
  const int index = blockIdx.y * OBJECT_THREADS + threadIdx.x, y = blockIdx.x, x = 4 * index;
  const unsigned white = bits.at(index / 8, y) ^ (is_black ? ~0u : 0), four = bytes_of(white >> x % 32 & 15);
  unsigned char* to = mask + size_t(y) * pitch + x;
  if (x + 4 <= bits.width && (reinterpret_cast<size_t>(to) & 3) == 0) {
    *reinterpret_cast<unsigned*>(to) = four;
  } else {
    for (int i = 0; i < 4 && x + i < bits.width; i++) to[i] = four >> 8 * i & 255;
  }
}

}  // extern "C"
