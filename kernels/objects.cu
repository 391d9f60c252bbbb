// target: compute_75, compute_80
//
// Objects of a mask: cleaning, connected components, and the integers that are counted of each.
//
// A mask is packed, 32 pixels of a row a word; the bits of objects are set, those behind a row's end are not.
// A fragment is a maximal run of bits within a word. A word has 16 at most: number k of word i is the node
// 16 i + k. So nodes are numbered in the order of their first pixels, and nothing has to be counted
// before they can be joined. Union-find gives each node a label, the least node that it is joined with. Roots
// are numbered in that order too, which is the order of the components' first pixels.
//
//   pack      bytes become bits
//   across, down      what is left if every square of 2 r + 1 pixels is eroded, or of the background instead
//   begin     each node is its own label
//   join      nodes that touch, beside each other and above
//   flatten   each label is a root; counts roots of each block
//   number    roots are numbered; each has sums of nothing
//   tally     adds a word's pixels to the sums of their components
//   border, fill      components of the background that do not reach the border become parts of objects
//
// Union by atomic minimum after Y. Komura, "GPU-based cluster-labeling algorithm without the use of
// conventional iteration", 2015; words as blocks after S. Allegretti, F. Bolelli, C. Grana, "Optimized
// Block-Based Algorithms to Label Connected Components on GPUs", 2019. The Euler number is that of cells: for
// objects with 4 neighbours pixels less pairs that share an edge and squares of four, with 8 neighbours
// pixels less pairs and triples and fours that lie in a square.
//
// All numbers are integers, and all are added by atomics: neither order nor grid changes them.
//
// Grid: all but `pack` one thread a word, rounded up to blocks of 256. Oracle:
// crates/lockon-core/src/reference/objects.rs, objects_are_the_references_on_2000_random_masks
// (crates/lockon-cuda/src/objects.rs).
#include "packed.cuh"
#include "window_sums.cuh"

// Threads of a block, of all kernels.
constexpr int OBJECT_THREADS = 256;

// Most fragments of a word.
constexpr int FRAGMENTS = 16;

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
  unsigned here, before, after;        // of its row
  unsigned above, above_before, above_after;

  __device__ __forceinline__ Around(const Bits& bits, int word, int y)
      : here(bits.at(word, y)),
        before(bits.at(word - 1, y)),
        after(bits.at(word + 1, y)),
        above(bits.at(word, y - 1)),
        above_before(bits.at(word - 1, y - 1)),
        above_after(bits.at(word + 1, y - 1)) {}

  // At each pixel the bit of the pixel to its left, and to its right.
  __device__ __forceinline__ unsigned left() const { return __funnelshift_l(before, here, 1); }
  __device__ __forceinline__ unsigned right() const { return __funnelshift_r(here, after, 1); }
  __device__ __forceinline__ unsigned above_left() const { return __funnelshift_l(above_before, above, 1); }
  __device__ __forceinline__ unsigned above_right() const { return __funnelshift_r(above, above_after, 1); }
};

// The thread's word; false if there is none.
__device__ __forceinline__ bool my_word(const Bits& bits, int& word, int& y) {
  const int index = blockIdx.x * OBJECT_THREADS + threadIdx.x;
  y = index / bits.per_row;
  word = index - y * bits.per_row;
  return y < bits.rows;
}

__device__ __forceinline__ unsigned node_of(const Bits& bits, int word, int y) {
  return (unsigned(y) * bits.per_row + word) * FRAGMENTS;
}

// The last node of a word, whose bits are not 0, and that of one of them.
__device__ __forceinline__ unsigned last_node(const Bits& bits, unsigned of_word, int word, int y) {
  return node_of(bits, word, y) + __popc(begins(of_word)) - 1;
}
__device__ __forceinline__ unsigned node_at(const Bits& bits, unsigned of_word, unsigned bit, int word, int y) {
  return node_of(bits, word, y) + __popc(begins(of_word) & (bit | (bit - 1))) - 1;
}

// The node's root by now, while others may be joining it.
__device__ __forceinline__ unsigned root_of(const volatile unsigned* labels, unsigned node) {
  for (;;) {
    const unsigned next = labels[node];
    if (next == node) return node;
    node = next;
  }
}

__device__ __forceinline__ void join_nodes(unsigned* labels, unsigned a, unsigned b) {
  for (;;) {
    a = root_of(labels, a);
    b = root_of(labels, b);
    if (a == b) return;
    const unsigned higher = max(a, b), lower = min(a, b);
    const unsigned was = atomicMin(labels + higher, lower);
    if (was == higher) return;
    // Another thread has joined it meanwhile.
    a = was;
    b = lower;
  }
}

#if __CUDA_ARCH__ >= 800
// Sums over the lanes of a group that all pass the same `group`.
__device__ __forceinline__ unsigned add_group(unsigned group, unsigned value) { return __reduce_add_sync(group, value); }

// As above, for numbers whose sum is below 2^64: in parts of 24 bits, as a warp's sum of these fits in 32.
__device__ __forceinline__ unsigned long long add_group(unsigned group, unsigned long long value) {
  const unsigned part = (1u << 24) - 1;
  const unsigned long long low = add_group(group, unsigned(value) & part),
                           middle = add_group(group, unsigned(value >> 24) & part),
                           high = add_group(group, unsigned(value >> 48));
  return low + (middle << 24) + (high << 48);
}
#endif

// Sums of nothing, of a component whose first pixel is in row y.
__device__ __forceinline__ Sums nothing(int y) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ~0u, 0, unsigned(y), unsigned(y), 255, 0};
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

// Bits of bytes of 128 or more, or with `is_black` of the others. One thread four pixels: eight neighbouring
// threads make a word. Grid: (rows, 8 words of a row / OBJECT_THREADS), rounded up.
__global__ void __launch_bounds__(OBJECT_THREADS)
    pack(const unsigned char* mask, int pitch, int width, int is_black, unsigned* words, int per_row) {
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
  int word, y;
  if (!my_word(bits, word, y)) return;
  const unsigned flipped = flip ? ~0u : 0;
  unsigned kept = ~0u;
  for (int row = max(y - radius, 0); row <= min(y + radius, bits.rows - 1); row++) kept &= bits.at(word, row) ^ flipped;
  to[size_t(y) * bits.per_row + word] = (kept ^ flipped) & bits.inside(word);
}

// The bits that are not set.
__global__ void __launch_bounds__(OBJECT_THREADS) invert(Bits bits, unsigned* to) {
  int word, y;
  if (my_word(bits, word, y)) to[size_t(y) * bits.per_row + word] = ~bits.at(word, y) & bits.inside(word);
}

// Each node its own label.
__global__ void __launch_bounds__(OBJECT_THREADS) begin(Bits bits, unsigned* labels) {
  int word, y;
  if (!my_word(bits, word, y)) return;
  const unsigned node = node_of(bits, word, y);
  const int count = __popc(begins(bits.at(word, y)));
  for (int k = 0; k < count; k++) labels[node + k] = node + k;
}

// Joins each node with those that it touches to its left and above.
__global__ void __launch_bounds__(OBJECT_THREADS) join(Bits bits, int is_eight, unsigned* labels) {
  int word, y;
  if (!my_word(bits, word, y)) return;
  const Around around(bits, word, y);
  unsigned node = node_of(bits, word, y);
  for (unsigned left = around.here; left; node++) {
    const unsigned mine = lowest(left);
    left &= ~mine;
    if ((mine & 1) && around.before >> 31) join_nodes(labels, node, last_node(bits, around.before, word - 1, y));
    unsigned reach = mine;
    if (is_eight) {
      reach |= mine << 1 | mine >> 1;
      if ((mine & 1) && around.above_before >> 31) {
        join_nodes(labels, node, last_node(bits, around.above_before, word - 1, y - 1));
      }
      if (mine >> 31 && (around.above_after & 1)) join_nodes(labels, node, node_of(bits, word + 1, y - 1));
    }
    for (unsigned touched = reach & around.above; touched;) {
      const unsigned first = touched & -touched;
      join_nodes(labels, node, node_at(bits, around.above, first, word, y - 1));
      // Not once more for the same fragment.
      touched &= around.above + first;
    }
  }
}

// Makes each label a root, and counts the roots of each block.
__global__ void __launch_bounds__(OBJECT_THREADS) flatten(Bits bits, unsigned* labels, unsigned* roots_of_blocks) {
  int word, y;
  unsigned roots = 0;
  if (my_word(bits, word, y)) {
    const unsigned node = node_of(bits, word, y);
    const int count = __popc(begins(bits.at(word, y)));
    for (int k = 0; k < count; k++) {
      const unsigned root = root_of(labels, node + k);
      labels[node + k] = root;
      roots += root == node + k;
    }
  }
  roots = __syncthreads_count(roots & 1) + 2 * __syncthreads_count(roots >> 1 & 1) + 4 * __syncthreads_count(roots >> 2 & 1) +
          8 * __syncthreads_count(roots >> 3 & 1) + 16 * __syncthreads_count(roots >> 4);
  if (threadIdx.x == 0) roots_of_blocks[blockIdx.x] = roots;
}

// Numbers the roots in the order of their nodes, and clears the sums of those that there is room for. `count`
// gets how many there are.
__global__ void __launch_bounds__(OBJECT_THREADS) number(Bits bits, const unsigned* labels, const unsigned* roots_of_blocks,
                                                         unsigned* numbers, Sums* sums, unsigned capacity, unsigned* count) {
  __shared__ unsigned of_warps[OBJECT_THREADS / 32];
  __shared__ unsigned base;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) base = 0;
  __syncthreads();
  unsigned before = 0;
  for (unsigned block = threadIdx.x; block < blockIdx.x; block += OBJECT_THREADS) before += roots_of_blocks[block];
  if (before) atomicAdd(&base, before);

  int word, y;
  const bool is_there = my_word(bits, word, y);
  const unsigned node = is_there ? node_of(bits, word, y) : 0;
  const int fragments = is_there ? __popc(begins(bits.at(word, y))) : 0;
  unsigned roots = 0;
  for (int k = 0; k < fragments; k++) roots |= unsigned(labels[node + k] == node + k) << k;
  unsigned up_to = __popc(roots);
  for (int step = 1; step < 32; step *= 2) {
    const unsigned other = __shfl_up_sync(ALL_LANES, up_to, step);
    if (lane >= step) up_to += other;
  }
  if (lane == 31) of_warps[warp] = up_to;
  __syncthreads();
  unsigned index = base + up_to - __popc(roots);
  for (int i = 0; i < warp; i++) index += of_warps[i];
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == OBJECT_THREADS - 1) *count = index + __popc(roots);
  for (; roots; roots &= roots - 1, index++) {
    numbers[node + __ffs(roots) - 1] = index;
    if (index < capacity) sums[index] = nothing(y);
  }
}

// Adds each word's pixels to the sums of their components. luma: rows `pitch` bytes apart, which begin at
// multiples of 16 and have room for all words.
__global__ void __launch_bounds__(OBJECT_THREADS) tally(Bits bits, int is_eight, const unsigned* labels, const unsigned* numbers,
                                                        const unsigned char* luma, int pitch, Sums* sums, unsigned capacity) {
  int word, y;
  const bool is_there = my_word(bits, word, y);
  // Lanes without a word have no pixels.
  const Around around(bits, is_there ? word : -2, is_there ? y : -2);
  const unsigned none = ~0u;
  unsigned current = none;
  Sums part = nothing(y);
  if (around.here) {
    uint4 pixels[2];
    const uint4* from = reinterpret_cast<const uint4*>(luma + size_t(y) * pitch + 32 * word);
    pixels[0] = from[0], pixels[1] = from[1];
    const unsigned of_four[8] = {pixels[0].x, pixels[0].y, pixels[0].z, pixels[0].w,
                                 pixels[1].x, pixels[1].y, pixels[1].z, pixels[1].w};
    const unsigned left = around.left(), right = around.right(), above = around.above, above_left = around.above_left(),
                   above_right = around.above_right();
    // A pixel, the one to its left and those above both are a square: all four are set, or three. Where only the
    // pixel itself is not, the square counts for its left neighbour.
    const unsigned fours = left & above_left & above;
    const unsigned threes = (left & (above_left ^ above)) | (~left & above_left & above);
    const unsigned threes_of_left = above & above_right & ~right;
    // Pixels whose diagonal neighbour is not in the same component for any other reason.
    const unsigned alone_left = above_left & ~above & ~left, alone_right = above_right & ~above & ~right;
    unsigned node = node_of(bits, word, y);
    for (unsigned rest = around.here; rest; node++) {
      const unsigned mine = lowest(rest);
      rest &= ~mine;
      const unsigned root = labels[node], index = numbers[root];
      if (index != current) {
        if (current < capacity) add_to(sums + current, part);
        part = nothing(y);
        current = index;
      }
      const unsigned n = __popc(mine), first = 32 * word + __ffs(mine) - 1;
      const unsigned long long x = (unsigned long long)n * first + n * (n - 1) / 2;
      part.area += n;
      part.x += x;
      part.xx += (unsigned long long)first * first * n + (unsigned long long)first * (n * (n - 1)) + (n - 1) * n * (2 * n - 1) / 6;
      part.y += (unsigned long long)n * y;
      part.xy += x * y;
      part.yy += (unsigned long long)n * y * y;
      part.left = min(part.left, first);
      part.right = max(part.right, first + n - 1);
      part.bottom = y;
      const unsigned edges = __popc(mine & left) + __popc(mine & above);
      unsigned corners = __popc(mine & above_left) + __popc(mine & above_right);
      if (is_eight) {
        part.euler += int(n) - int(edges) - int(corners) + __popc(mine & threes) + __popc(mine & threes_of_left) +
                      3 * __popc(mine & fours);
      } else {
        part.euler += int(n) - int(edges) + __popc(mine & fours);
        const auto is_other = [&](int bit, int step) {
          // The pixel in the row above, one to the left or right of `bit`.
          const int x = 32 * word + bit + step, of_word = x >> 5;
          return labels[node_at(bits, bits.at(of_word, y - 1), 1u << (x & 31), of_word, y - 1)] != root;
        };
        for (unsigned bits_left = mine & alone_left; bits_left; bits_left &= bits_left - 1) {
          corners -= is_other(__ffs(bits_left) - 1, -1);
        }
        for (unsigned bits_left = mine & alone_right; bits_left; bits_left &= bits_left - 1) {
          corners -= is_other(__ffs(bits_left) - 1, 1);
        }
      }
      part.edges += edges;
      part.corners += corners;
      unsigned luma_sum = 0, least = 0xffffffffu, most = 0;
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const unsigned four = mine >> 4 * i & 15;
        if (!four) continue;
        const unsigned bytes = bytes_of(four);
        luma_sum = dot4(of_four[i] & bytes, 0x01010101u, luma_sum);
        least = __vminu4(least, of_four[i] | ~bytes);
        most = __vmaxu4(most, of_four[i] & bytes);
      }
      least = __vminu4(least, least >> 16);
      most = __vmaxu4(most, most >> 16);
      part.luma += luma_sum;
      part.min_luma = min(part.min_luma, min(least & 255, least >> 8 & 255));
      part.max_luma = max(part.max_luma, max(most & 255, most >> 8 & 255));
    }
  }
  __syncwarp();
  // Lanes whose last sums belong to one component add them together.
  bool is_first = true;
#if __CUDA_ARCH__ >= 800
  const unsigned group = __match_any_sync(ALL_LANES, current);
  is_first = threadIdx.x % 32 == __ffs(group) - 1;
  if (__any_sync(ALL_LANES, __popc(group) > 1 && current != none)) {
    part.x = add_group(group, part.x);
    part.y = add_group(group, part.y);
    part.xx = add_group(group, part.xx);
    part.xy = add_group(group, part.xy);
    part.yy = add_group(group, part.yy);
    part.luma = add_group(group, part.luma);
    part.area = add_group(group, part.area);
    part.edges = add_group(group, part.edges);
    part.corners = add_group(group, part.corners);
    part.euler = int(add_group(group, unsigned(part.euler)));
    part.left = __reduce_min_sync(group, part.left);
    part.right = __reduce_max_sync(group, part.right);
    part.bottom = __reduce_max_sync(group, part.bottom);
    part.min_luma = __reduce_min_sync(group, part.min_luma);
    part.max_luma = __reduce_max_sync(group, part.max_luma);
  }
#endif
  if (is_first && current < capacity) add_to(sums + current, part);
}

// Marks the roots of components that reach the border of the picture. All marks are 0 before.
__global__ void __launch_bounds__(OBJECT_THREADS) border(Bits bits, const unsigned* labels, unsigned* marks) {
  int word, y;
  if (!my_word(bits, word, y)) return;
  const bool is_end = y == 0 || y == bits.rows - 1;
  const unsigned last_bit = word == bits.per_row - 1 ? 1u << ((bits.width - 1) & 31) : 0;
  unsigned node = node_of(bits, word, y);
  for (unsigned left = bits.at(word, y); left; node++) {
    const unsigned mine = lowest(left);
    left &= ~mine;
    if (is_end || (word == 0 && (mine & 1)) || (mine & last_bit)) marks[labels[node]] = 1;
  }
}

// Adds to a mask the components of its background whose roots are not marked.
__global__ void __launch_bounds__(OBJECT_THREADS) fill(Bits background, const unsigned* labels, const unsigned* marks, unsigned* to) {
  int word, y;
  if (!my_word(background, word, y)) return;
  unsigned node = node_of(background, word, y), filled = 0;
  for (unsigned left = background.at(word, y); left; node++) {
    const unsigned mine = lowest(left);
    left &= ~mine;
    if (!marks[labels[node]]) filled |= mine;
  }
  if (filled) to[size_t(y) * background.per_row + word] |= filled;
}

// Bytes of bits: 255 where they are set, or with `is_black` where they are not. One thread a word.
__global__ void __launch_bounds__(OBJECT_THREADS) unpack(Bits bits, int is_black, unsigned char* mask, int pitch) {
  int word, y;
  if (!my_word(bits, word, y)) return;
  const unsigned white = bits.at(word, y) ^ (is_black ? ~0u : 0);
  unsigned char* to = mask + size_t(y) * pitch + 32 * word;
  const int pixels = min(32, bits.width - 32 * word);
  for (int i = 0; i < pixels; i++) to[i] = white >> i & 1 ? 255 : 0;
}

}  // extern "C"
