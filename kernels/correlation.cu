// The tracker's correlation filters: looks at windows, and learning.
//
// A window is 128 x 128 samples of luma and 64 x 64 of each chroma, which `sample_listed_grids` (surface.cu) made. It
// becomes 32 x 32 cells of 32 features; their spectrum is multiplied with a filter's and transformed back. What
// the features are, how a filter learns, and the order of all sums are those of the host: hog.rs, names.rs,
// eye.rs, colour.rs, fft.rs and filter.rs in crates/lockon-core/src/tracker/, which are the oracle in the tests
// of crates/lockon-cuda/src/correlation.rs. f32 and f64 are never fused, and numbers of mathematical functions
// come from the host, in `Tables`.
//
// One block works on one window, or on one filter, in shared memory. Between the steps, threads change places:
// a thread has a cell, then a row of two channels, then a column of one channel. All steps use the same memory,
// so a barrier stands before each step that reads what other threads have written, and before each that writes
// where others may still read.
#include "shared.h"

constexpr int GRID = 32;       // cells on a side
constexpr int HALF = 17;       // frequencies kept in a row
constexpr int CHANNELS = 32;
constexpr int CELLS = GRID * GRID;
constexpr int FREQUENCIES = GRID * HALF;
constexpr int THREADS = HALF * 32;  // a warp for each column of a spectrum
constexpr int SIDE = 128;           // samples of luma on a side
constexpr int COLOUR_SIDE = 64;
constexpr int LUMA_BYTES = SIDE * SIDE;
constexpr int CHROMA_BYTES = COLOUR_SIDE * COLOUR_SIDE;
constexpr int PATCH_BYTES = LUMA_BYTES + 2 * CHROMA_BYTES;
constexpr int SPECTRUM = FREQUENCIES * CHANNELS;  // real parts; as many imaginary ones follow

// A filter in memory, in floats: what it has learnt and its response to the last sample; the first filter; the
// factors of cells in `learn`: 1 / (the weight outside of the box + PENALTY), over CELLS; the label's spectrum;
// what it is drawn to; states that are kept; the spectrum of the last sample; and room for a spectrum.
constexpr int LEARNT = 2 * SPECTRUM + 32;
constexpr int TOP = 2 * SPECTRUM;
constexpr int ANCHOR = LEARNT;
constexpr int WEIGHTS = ANCHOR + 2 * SPECTRUM;
constexpr int LABEL = WEIGHTS + CELLS;
constexpr int NUMBERS = LABEL + 2 * FREQUENCIES;  // memory of the last, of the first, and the unit of power
constexpr int KEPT_STATES = NUMBERS + 32;
constexpr int SAMPLE = KEPT_STATES + 3 * LEARNT;
constexpr int ROOM = SAMPLE + 2 * SPECTRUM;
constexpr int FILTER = ROOM + 2 * SPECTRUM;

// Tables, in floats: turns of the transforms, tapers, and bells of the colour names.
constexpr int TAPERS = 2 * GRID;
constexpr int NAME_BELLS = TAPERS + 2 * CELLS;
constexpr int NAME_LANES = 16;
constexpr int TABLES = NAME_BELLS + 3 * 256 * NAME_LANES;
static_assert(FILTER % 32 == 0 && TABLES % 32 == 0);

// Shared memory: two planes of a spectrum, in which all other things lie in their turn; a window's samples;
// the turns; and the directions of gradients.
constexpr int PLANES_BYTES = 2 * SPECTRUM * 4;
constexpr int LEARN_SHARED_BYTES = PLANES_BYTES + 256;
constexpr int LOOK_SHARED_BYTES = PLANES_BYTES + PATCH_BYTES + 256 + 80;
// A block of compute capability 8.0 has that.
static_assert(LOOK_SHARED_BYTES <= 163 << 10 && LEARN_SHARED_BYTES <= 163 << 10);

// In the planes: histograms, then energies, norms and probabilities.
constexpr int SIGNED = 18;
constexpr int UNSIGNED = 9;
constexpr int ENERGIES = SIGNED * CELLS;
constexpr int NORMS = ENERGIES + CELLS;
constexpr int NORM_SIDE = GRID + 1;
constexpr int PROBABILITIES = NORMS + 1120;
constexpr int PROBABILITY_PITCH = COLOUR_SIDE + 1;
static_assert(NORM_SIDE * NORM_SIDE <= 1120 && PROBABILITIES + COLOUR_SIDE * PROBABILITY_PITCH <= 2 * SPECTRUM);

// In the planes, at the end of a look: the spectrum of responses, responses on their way back, the colours'
// sums, and the bins' probabilities.
constexpr int RESPONSES = 2 * FREQUENCIES;
constexpr int BACK = RESPONSES + 2 * FREQUENCIES;
constexpr int SUMS = 8192;
constexpr int SUM_PITCH = COLOUR_SIDE + 1;
static_assert(BACK + 2 * GRID * (GRID + 1) <= SUMS && SUMS % 2 == 0);
static_assert(SUMS + 2 * SUM_PITCH * SUM_PITCH + COLOUR_SIDE * PROBABILITY_PITCH <= 2 * SPECTRUM);

struct Look {
  unsigned long long filter;
  unsigned long long patch;
  unsigned long long probabilities;  // of each bin
  unsigned long long responses;      // pointers to the host's memory; the last two may be 0
  unsigned long long colours;
  unsigned long long bins;
  int has_chroma;
  int is_wide;
  int half_width;
  int half_height;
  int is_learnt;
  int unused;
};
static_assert(sizeof(Look) == 72 && OFFSET(Look, has_chroma) == 48 && OFFSET(Look, is_learnt) == 64);

// How the sample that a filter looked at last is moved, in its spectrum.
struct Lesson {
  unsigned long long filter;
  float rows[GRID][2];
  float columns[HALF][2];
};
static_assert(sizeof(Lesson) == 400 && OFFSET(Lesson, rows) == 8 && OFFSET(Lesson, columns) == 264);

struct Complex {
  float re;
  float im;
};

__device__ __forceinline__ Complex add(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
__device__ __forceinline__ Complex subtract(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
__device__ __forceinline__ Complex times(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ __forceinline__ Complex quarter(Complex a) { return {a.im, -a.re}; }

__device__ __forceinline__ void four(Complex& a, Complex& b, Complex& c, Complex& d) {
  const Complex e = add(a, c), f = subtract(a, c), g = add(b, d), h = quarter(subtract(b, d));
  a = add(e, g);
  b = add(f, h);
  c = subtract(e, g);
  d = subtract(f, h);
}

// As `four`, over the elements 4 apart of a line, from the `k`-th on.
__device__ __forceinline__ void eight(Complex (&line)[GRID], int k) {
  constexpr float ROOT = 0.70710678118654752440f;
  Complex m0 = line[k], m1 = line[k + 8], m2 = line[k + 16], m3 = line[k + 24];
  Complex p = line[k + 4], q = line[k + 12], r = line[k + 20], s = line[k + 28];
  four(m0, m1, m2, m3);
  four(p, q, r, s);
  q = {ROOT * (q.re + q.im), ROOT * (q.im - q.re)};
  r = quarter(r);
  s = {ROOT * (s.im - s.re), -ROOT * (s.re + s.im)};
  line[k] = add(m0, p);
  line[k + 4] = add(m1, q);
  line[k + 8] = add(m2, r);
  line[k + 12] = add(m3, s);
  line[k + 16] = subtract(m0, p);
  line[k + 20] = subtract(m1, q);
  line[k + 24] = subtract(m2, r);
  line[k + 28] = subtract(m3, s);
}

// Transforms a line in place. Element 8 k + n of the result lies at 4 n + k: `at` says where.
__device__ __forceinline__ void transform(Complex (&line)[GRID], const Complex* turns) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    eight(line, k);
#pragma unroll
    for (int n = 1; n < 8; ++n) line[k + 4 * n] = times(line[k + 4 * n], turns[n * k]);
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) four(line[4 * n], line[4 * n + 1], line[4 * n + 2], line[4 * n + 3]);
}

__device__ __forceinline__ constexpr int at(int index) { return 4 * (index % 8) + index / 8; }

// Puts the elements of a transformed line in order.
__device__ __forceinline__ void in_order(Complex (&line)[GRID]) {
  Complex ordered[GRID];
#pragma unroll
  for (int n = 0; n < GRID; ++n) ordered[n] = line[at(n)];
#pragma unroll
  for (int n = 0; n < GRID; ++n) line[n] = ordered[n];
}

__device__ __forceinline__ Complex swapped(Complex a) { return {a.im, a.re}; }

// The sum over a warp in halves, in each of its threads: additions of two do not depend on their order.
__device__ __forceinline__ float sum(float value) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value += __shfl_xor_sync(~0u, value, half);
  return value;
}

// The frequency of row `n` and column `x`.
__device__ __forceinline__ constexpr int frequency(int n, int x) { return n * HALF + x; }

// Takes the two real channels of each complex one apart, out of a transformed row.
__device__ __forceinline__ void unpack(const Complex (&row)[GRID], int y, int pair, float* re, float* im) {
#pragma unroll
  for (int x = 0; x < HALF; ++x) {
    const Complex p = row[at(x)], q = row[at((GRID - x) % GRID)];
    const int place = frequency(y, x) * CHANNELS + pair;
    re[place] = 0.5f * (p.re + q.re);
    im[place] = 0.5f * (p.im - q.im);
    re[place + CHANNELS / 2] = 0.5f * (p.im + q.im);
    im[place + CHANNELS / 2] = 0.5f * (q.re - p.re);
  }
}

__device__ __forceinline__ Complex load(const float* spectrum, int place) {
  return {spectrum[place], spectrum[place + SPECTRUM]};
}

__device__ __forceinline__ void store(float* spectrum, int place, Complex value) {
  spectrum[place] = value.re;
  spectrum[place + SPECTRUM] = value.im;
}

// Transforms a channel's column of a spectrum whose rows are transformed.
__device__ __forceinline__ void transform_column(const float* planes, int x, int channel, const Complex* turns,
                                                 Complex (&line)[GRID]) {
#pragma unroll
  for (int n = 0; n < GRID; ++n) line[n] = load(planes, frequency(n, x) * CHANNELS + channel);
  transform(line, turns);
}

// ---- features ----

// Unsigned directions 20 degrees apart, times 90 (COSINES and SINES of hog.rs); the last one is the first,
// negated: see `product`.
constexpr int2 DIRECTIONS[UNSIGNED + 1] = {{90, 0},   {85, 31},  {69, 58},  {45, 78},  {16, 89},
                                           {-16, 89}, {-45, 78}, {-69, 58}, {-85, 31}, {90, 0}};

// True if products with a direction are negated: two in four, so that the two neighbours of a direction have
// the signs that shares need.
__device__ __forceinline__ bool is_turned(int direction) {
  return (direction >> 1 & 1) != 0 || direction == UNSIGNED;
}

__device__ __forceinline__ int cross(int2 direction, int gx, int gy) {
  return direction.x * gy - direction.y * gx;
}

// The product of a gradient with a direction, rounded.
__device__ __forceinline__ int product(const int2* directions, int direction, int gx, int gy) {
  const int value = (cross(directions[direction], gx, gy) + 4) >> 3;
  return is_turned(direction) ? -value : value;
}

// Adds a pixel's gradient to the histograms of the cells about it.
__device__ __forceinline__ void share_out(const unsigned char* luma, const int2* directions, int line, int k, int x,
                                          int* histograms) {
  const unsigned char* row = luma + line * SIDE;
  // In a row stand first the first samples of all cells, then the second ones, and so on.
  const int own = k * GRID + x;
  const int left = k > 0 ? row[own - GRID] : x > 0 ? row[3 * GRID + x - 1] : row[own];
  const int right = k < 3 ? row[own + GRID] : x < GRID - 1 ? row[x + 1] : row[own];
  const int above = line > 0 ? row[own - SIDE] : row[own];
  const int below = line < SIDE - 1 ? row[own + SIDE] : row[own];
  const int gx = right - left, gy = below - above;
  // The line of the gradient lies between two directions, and only these have a share of it. That is the
  // number of directions that it is beyond.
  const int across_x = gy < 0 ? -gx : gx, across_y = gy < 0 ? -gy : gy;
  int between = 0;
#pragma unroll
  for (int direction = 1; direction < UNSIGNED; ++direction)
    between += cross(DIRECTIONS[direction], across_x, across_y) > 0 ? 1 : 0;
  if (gy == 0) between = 0;
  const int y = line / 4, part = line % 4;
  // Eighths for the neighbour: 3 and 1 above, 1 and 3 below.
  const int down = part < 2 ? -1 : 1, across = k < 2 ? -1 : 1;
  const int to_row = part == 0 || part == 3 ? 3 : 1, to_column = k == 0 || k == 3 ? 3 : 1;
  const bool has_row = y + down >= 0 && y + down < GRID, has_column = x + across >= 0 && x + across < GRID;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int bin = side == 0 ? between : between + 1 < UNSIGNED ? between + 1 : 0;
    const int of = bin > 0 ? bin - 1 : UNSIGNED - 1;
    const int before = product(directions, of, gx, gy), after = product(directions, bin + 1, gx, gy);
    const bool is_positive = min(before, after) > 0;
    const int share = is_positive ? min(before, after) : -max(before, after);
    if (share <= 0) continue;
    const bool is_behind = is_turned(of) != (bin == 0);
    const int direction = is_positive == is_behind ? bin + UNSIGNED : bin;
    int* cell = histograms + direction * CELLS + y * GRID + x;
    atomicAdd(cell, (8 - to_row) * (8 - to_column) * share);
    if (has_column) atomicAdd(cell + across, (8 - to_row) * to_column * share);
    if (has_row) {
      atomicAdd(cell + down * GRID, to_row * (8 - to_column) * share);
      if (has_column) atomicAdd(cell + down * GRID + across, to_row * to_column * share);
    }
  }
}

constexpr float UNIT = 90.0f / 8.0f * 0.34202014f * 64.0f;
constexpr float NOISE_ENERGY = 1000.0f;
constexpr float CUT = 0.2f;

__device__ __forceinline__ float of_histogram(const int* histograms, int direction, int cell) {
  return (float)histograms[direction * CELLS + cell] * (1.0f / UNIT);
}

__device__ __forceinline__ float cut(float value) { return value < CUT ? value : CUT; }

// The bin of a sample of colours, as colour.rs: chroma in 12 steps of 6 from 92 on, luma in 8 steps of 32.
__device__ __forceinline__ int step(int chroma) { return min(max(chroma - 92, 0), 71) / 6; }
__device__ __forceinline__ int bin_of(const unsigned char* patch, int sample, bool has_chroma) {
  const int x = sample % COLOUR_SIDE, y = sample / COLOUR_SIDE;
  const unsigned char* pixels = patch + 2 * y * SIDE + x % 2 * 2 * GRID + x / 2;
  const int mean = (pixels[0] + pixels[GRID] + pixels[SIDE] + pixels[SIDE + GRID]) / 4;
  if (!has_chroma) return mean / 8;
  const int u = patch[LUMA_BYTES + sample], v = patch[LUMA_BYTES + CHROMA_BYTES + sample];
  return (mean / 32 * 12 + step(u)) * 12 + step(v);
}

// The features of a cell, but for the taper. Weights and limits are those of hog.rs, names.rs and eye.rs:
// energy 0.0589, NONE 1e-6, NAME_WEIGHT 1.3, LUMA_WEIGHT 1 / 255, CHROMA_WEIGHT 2 / 255, COLOUR_WEIGHT 0.5.
__device__ __forceinline__ void describe(const float* planes, const unsigned char* patch, const float* tables,
                                         int cell, float (&features)[CHANNELS]) {
  const int x = cell % GRID, y = cell / GRID;
  const int* histograms = (const int*)planes;
  const float* norms = planes + NORMS + y * NORM_SIDE + x;
  const float a = norms[0], b = norms[1], c = norms[NORM_SIDE], d = norms[NORM_SIDE + 1];
  float total = 0.0f;
#pragma unroll
  for (int direction = 0; direction < SIGNED; ++direction) {
    const float value = of_histogram(histograms, direction, cell);
    const float sum = cut(value * a) + cut(value * b) + cut(value * c) + cut(value * d);
    features[direction] = 0.5f * sum;
    total += sum;
  }
  features[SIGNED] = 0.0589f * total;
  int luma = 0, u = 0, v = 0;
#pragma unroll
  for (int row = 0; row < 4; ++row)
    for (int k = 0; k < 4; ++k) luma += patch[(4 * y + row) * SIDE + k * GRID + x];
  const unsigned char* chroma = patch + LUMA_BYTES + 2 * y * COLOUR_SIDE + 2 * x;
  u = chroma[0] + chroma[1] + chroma[COLOUR_SIDE] + chroma[COLOUR_SIDE + 1];
  chroma += CHROMA_BYTES;
  v = chroma[0] + chroma[1] + chroma[COLOUR_SIDE] + chroma[COLOUR_SIDE + 1];
  const float* of_luma = tables + NAME_BELLS + (luma + 8) / 16 * NAME_LANES;
  const float* of_u = tables + NAME_BELLS + (256 + u / 4) * NAME_LANES;
  const float* of_v = tables + NAME_BELLS + (512 + v / 4) * NAME_LANES;
  constexpr int NAMES = 9;
  float bells[NAMES], sum = 0.0f;
#pragma unroll
  for (int name = 0; name < NAMES; ++name) bells[name] = of_luma[name] * of_u[name] * of_v[name] + 1e-6f;
#pragma unroll
  for (int name = 0; name < NAMES; ++name) sum += bells[name];
#pragma unroll
  for (int name = 0; name < NAMES; ++name) features[19 + name] = 1.3f * (bells[name] / sum - 1.0f / 9.0f);
  features[28] = 1.0f / 255.0f * ((float)luma / 16.0f - 128.0f);
  features[29] = 2.0f / 255.0f * ((float)u / 4.0f - 128.0f);
  features[30] = 2.0f / 255.0f * ((float)v / 4.0f - 128.0f);
  const float* probabilities = planes + PROBABILITIES + 2 * y * PROBABILITY_PITCH + 2 * x;
  const float mean = 0.25f * ((probabilities[0] + probabilities[1]) +
                              (probabilities[PROBABILITY_PITCH] + probabilities[PROBABILITY_PITCH + 1]));
  features[31] = 0.5f * (mean - 0.5f);
}

// Looks at windows. Grid (looks), block THREADS, shared memory LOOK_SHARED_BYTES.
extern "C" __global__ __launch_bounds__(THREADS, 1) void look(const Look* looks, const float* tables) {
  extern __shared__ float4 shared[];
  float* planes = (float*)shared;
  unsigned char* patch = (unsigned char*)planes + PLANES_BYTES;
  Complex* turns = (Complex*)(patch + PATCH_BYTES);
  int2* directions = (int2*)(turns + GRID);
  const Look look = looks[blockIdx.x];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const float* bins = (const float*)look.probabilities;

  for (int i = thread; i < PATCH_BYTES / 16; i += THREADS) {
    uint4 samples = ((const uint4*)look.patch)[i];
    if (i >= LUMA_BYTES / 16 && !look.has_chroma) samples = {0x80808080u, 0x80808080u, 0x80808080u, 0x80808080u};
    ((uint4*)patch)[i] = samples;
  }
  for (int i = thread; i < SIGNED * CELLS; i += THREADS) ((int*)planes)[i] = 0;
  if (thread < GRID) turns[thread] = ((const Complex*)tables)[thread];
#pragma unroll
  for (int direction = 0; direction <= UNSIGNED; ++direction)
    if (thread == direction) directions[direction] = DIRECTIONS[direction];
  __syncthreads();

  for (int place = warp; place < 4 * SIDE; place += HALF)
    share_out(patch, directions, place / 4, place % 4, lane, (int*)planes);
  for (int i = thread; i < CHROMA_BYTES; i += THREADS)
    planes[PROBABILITIES + i / COLOUR_SIDE * PROBABILITY_PITCH + i % COLOUR_SIDE] =
        bins[bin_of(patch, i, look.has_chroma)];
  __syncthreads();

  for (int cell = thread; cell < CELLS; cell += THREADS) {
    float energy = 0.0f;
    for (int direction = 0; direction < UNSIGNED; ++direction) {
      const float value = of_histogram((const int*)planes, direction, cell) +
                          of_histogram((const int*)planes, direction + UNSIGNED, cell);
      energy += value * value;
    }
    planes[ENERGIES + cell] = energy;
  }
  __syncthreads();
  // Of the blocks at the corners of cells. Beyond the border the border's cells are repeated.
  for (int corner = thread; corner < NORM_SIDE * NORM_SIDE; corner += THREADS) {
    const int x = corner % NORM_SIDE, y = corner / NORM_SIDE;
    const float* above = planes + ENERGIES + max(y - 1, 0) * GRID;
    const float* below = planes + ENERGIES + min(y, GRID - 1) * GRID;
    const int left = max(x - 1, 0), right = min(x, GRID - 1);
    const float energy = (above[left] + below[left]) + (above[right] + below[right]);
    planes[NORMS + corner] = 1.0f / sqrtf(energy + NOISE_ENERGY);
  }
  __syncthreads();

  // Two cells a thread, kept until all have read the histograms.
  float first[CHANNELS], second[CHANNELS];
  const bool has_second = thread + THREADS < CELLS;
  describe(planes, patch, tables, thread, first);
  if (has_second) describe(planes, patch, tables, thread + THREADS, second);
  __syncthreads();
  const float* taper = tables + TAPERS + look.is_wide * CELLS;
#pragma unroll
  for (int channel = 0; channel < CHANNELS; ++channel) {
    // Turned by the cell, so that neither cells nor channels meet in a bank.
    const int place = (channel + thread) % CHANNELS;
    planes[thread * CHANNELS + place] = first[channel] * taper[thread];
    const int other = thread + THREADS;
    if (has_second) planes[other * CHANNELS + (channel + other) % CHANNELS] = second[channel] * taper[other];
  }
  __syncthreads();

  // Rows, two real channels as one complex one.
  Complex line[GRID];
  const int pair = thread % (CHANNELS / 2), y = thread / (CHANNELS / 2);
  if (y < GRID) {
#pragma unroll
    for (int x = 0; x < GRID; ++x) {
      const int cell = y * GRID + x;
      line[x].re = planes[cell * CHANNELS + (pair + cell) % CHANNELS];
      line[x].im = planes[cell * CHANNELS + (pair + CHANNELS / 2 + cell) % CHANNELS];
    }
    transform(line, turns);
  }
  __syncthreads();
  if (y < GRID) unpack(line, y, pair, planes, planes + SPECTRUM);
  __syncthreads();

  // Columns, and the filter's response.
  transform_column(planes, warp, lane, turns, line);
  __syncthreads();
  float* filter = (float*)look.filter;
  const float share = 1.0f / filter[TOP];
#pragma unroll
  for (int n = 0; n < GRID; ++n) {
    const int k = frequency(n, warp), place = k * CHANNELS + lane;
    const Complex seen = line[at(n)], own = load(filter, place);
    if (look.is_learnt) store(filter + SAMPLE, place, seen);
    const float re = sum(own.re * seen.re + own.im * seen.im), im = sum(own.re * seen.im - own.im * seen.re);
    if (lane == 0) {
      planes[RESPONSES + k] = re * share;
      planes[RESPONSES + FREQUENCIES + k] = im * share;
    }
  }
  __syncthreads();

  double* sums = (double*)(planes + SUMS);
  float* probabilities = planes + SUMS + 2 * SUM_PITCH * SUM_PITCH;
  if (warp == 0) {
    const float *re = planes + RESPONSES, *im = re + FREQUENCIES;
    // The whole spectrum: what is not kept of a row is the conjugate of another.
    const bool is_kept = lane < HALF;
#pragma unroll
    for (int n = 0; n < GRID; ++n) {
      const int k = is_kept ? frequency(n, lane) : frequency((GRID - n) % GRID, GRID - lane);
      line[n] = swapped({re[k], is_kept ? im[k] : -im[k]});
    }
    transform(line, turns);
    float* back = planes + BACK;
#pragma unroll
    for (int n = 0; n < GRID; ++n) {
      const Complex value = swapped(line[at(n)]);
      back[n * (GRID + 1) + lane] = value.re;
      back[(GRID + n) * (GRID + 1) + lane] = value.im;
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < GRID; ++n)
      line[n] = swapped({back[lane * (GRID + 1) + n], back[(GRID + lane) * (GRID + 1) + n]});
    transform(line, turns);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < GRID; ++n)
      back[lane * (GRID + 1) + n] = swapped(line[at(n)]).re * (1.0f / (float)CELLS);
  } else if (look.colours != 0 || look.bins != 0) {
    for (int i = thread - 32; i < CHROMA_BYTES; i += THREADS - 32) {
      const int bin = bin_of(patch, i, look.has_chroma);
      probabilities[i / COLOUR_SIDE * PROBABILITY_PITCH + i % COLOUR_SIDE] = bins[bin];
      if (look.bins != 0) ((unsigned short*)look.bins)[i] = (unsigned short)bin;
    }
  }
  __syncthreads();
  for (int i = thread; i < CELLS; i += THREADS)
    ((float*)look.responses)[i] = planes[BACK + i / GRID * (GRID + 1) + i % GRID];
  if (look.colours == 0) return;

  // The mean probability of the box at each place, from sums of all samples left of and above a corner.
  if (thread < SUM_PITCH) sums[thread] = 0.0;
  if (thread < COLOUR_SIDE) {
    double* row = sums + (thread + 1) * SUM_PITCH;
    double sum = 0.0;
    row[0] = 0.0;
    for (int x = 0; x < COLOUR_SIDE; ++x) {
      sum += (double)probabilities[thread * PROBABILITY_PITCH + x];
      row[x + 1] = sum;
    }
  }
  __syncthreads();
  if (thread < COLOUR_SIDE) {
    double* column = sums + thread + 1;
    double sum = 0.0;
    for (int y = 0; y < COLOUR_SIDE; ++y) {
      sum = sum + column[(y + 1) * SUM_PITCH];
      column[(y + 1) * SUM_PITCH] = sum;
    }
  }
  __syncthreads();
  for (int i = thread; i < CELLS; i += THREADS) {
    const int across = i % GRID, down = i / GRID;
    const int x = 2 * (across < GRID / 2 ? across : across - GRID) + COLOUR_SIDE / 2;
    const int y = 2 * (down < GRID / 2 ? down : down - GRID) + COLOUR_SIDE / 2;
    const auto inside = [](int v) { return min(max(v, 0), COLOUR_SIDE); };
    const int left = inside(x - look.half_width), right = inside(x + look.half_width);
    const int top = inside(y - look.half_height), bottom = inside(y + look.half_height);
    const double sum = sums[bottom * SUM_PITCH + right] - sums[top * SUM_PITCH + right] -
                       sums[bottom * SUM_PITCH + left] + sums[top * SUM_PITCH + left];
    ((float*)look.colours)[i] = (float)(sum / (double)(4LL * look.half_width * look.half_height));
  }
}

// ---- learning ----

// ADMM's weight of g = h in its first round, and by how much it grows: as in correlator.rs and filter.rs.
constexpr float PENALTY = 1.0f;
constexpr float GROWTH = 10.0f;

// g for a sample x and for what it would be without; `weight` is the power of the sample and of all that draws
// g.
__device__ __forceinline__ Complex fit(Complex x, Complex v, float label_re, float label_im, float weight) {
  const float re = sum(x.re * v.re + x.im * v.im), im = sum(x.re * v.im - x.im * v.re);
  // A response is the sum of conj(g) x, so the label comes in conjugated.
  const float cr = (label_re - re) / weight, ci = (-label_im - im) / weight;
  return {v.re + cr * x.re - ci * x.im, v.im + cr * x.im + ci * x.re};
}

__device__ __forceinline__ float without(float penalty, float share, float h, float l, float goal) {
  return (penalty * h - l + goal) * share;
}

// Filters learn the samples that they looked at last. Grid (lessons), block THREADS, shared memory
// LEARN_SHARED_BYTES.
extern "C" __global__ __launch_bounds__(THREADS, 1) void learn(const Lesson* lessons, const float* tables) {
  extern __shared__ float4 shared[];
  float* planes = (float*)shared;
  Complex* turns = (Complex*)((unsigned char*)planes + PLANES_BYTES);
  const Lesson& lesson = lessons[blockIdx.x];
  float* filter = (float*)lesson.filter;
  float *sample = filter + SAMPLE, *room = filter + ROOM;
  const float *anchor = filter + ANCHOR, *label = filter + LABEL;
  const float memory = filter[NUMBERS], first = filter[NUMBERS + 1], power = filter[NUMBERS + 2];
  const int thread = threadIdx.x, lane = thread % 32, x = thread / 32;
  if (thread < GRID) turns[thread] = ((const Complex*)tables)[thread];
  __syncthreads();

  const float total = PENALTY + memory + first, next_total = PENALTY * GROWTH + memory + first;
  const float share = 1.0f / total, next_share = 1.0f / next_total;
  const Complex column = {lesson.columns[x][0], lesson.columns[x][1]};
  // h, confined to the box, is made of g. Each thread goes on with the column that it made.
#pragma unroll 2
  for (int n = 0; n < GRID; ++n) {
    const int k = frequency(n, x), place = k * CHANNELS + lane;
    const Complex turn = times({lesson.rows[n][0], lesson.rows[n][1]}, column);
    const Complex seen = load(sample, place);
    const Complex moved = {seen.re * turn.re - seen.im * turn.im, seen.re * turn.im + seen.im * turn.re};
    store(sample, place, moved);
    const float of_sample = sum(moved.re * moved.re + moved.im * moved.im);
    const Complex last = load(filter, place), begun = load(anchor, place);
    const Complex v = {without(PENALTY, share, 0.0f, 0.0f, memory * last.re + first * begun.re),
                       without(PENALTY, share, 0.0f, 0.0f, memory * last.im + first * begun.im)};
    const Complex g = fit(moved, v, label[k], label[FREQUENCIES + k], of_sample + power * total);
    store(room, place, g);
    store(planes, place, {PENALTY * g.re + 0.0f, PENALTY * g.im + 0.0f});
  }
  Complex line[GRID];
#pragma unroll
  for (int n = 0; n < GRID; ++n) line[n] = swapped(load(planes, frequency(n, x) * CHANNELS + lane));
  transform(line, turns);
#pragma unroll
  for (int n = 0; n < GRID; ++n) store(planes, frequency(n, x) * CHANNELS + lane, swapped(line[at(n)]));
  __syncthreads();

  const int pair = thread % (CHANNELS / 2), y = thread / (CHANNELS / 2);
  if (y < GRID) {
    const float *re = planes + pair, *im = re + SPECTRUM;
#pragma unroll
    for (int n = 0; n < HALF; ++n) {
      const int one = frequency(y, n) * CHANNELS, other = one + CHANNELS / 2;
      line[n] = swapped({re[one] - im[other], im[one] + re[other]});
      if (n > 0 && n < HALF - 1) line[GRID - n] = swapped({re[one] + im[other], re[other] - im[one]});
    }
    transform(line, turns);
    const float* weights = filter + WEIGHTS + y * GRID;
#pragma unroll
    for (int n = 0; n < GRID; ++n) {
      const Complex value = swapped(line[at(n)]);
      line[at(n)] = {value.re * weights[n], value.im * weights[n]};
    }
    in_order(line);
    transform(line, turns);
  }
  __syncthreads();
  if (y < GRID) unpack(line, y, pair, planes, planes + SPECTRUM);
  __syncthreads();

  transform_column(planes, x, lane, turns, line);
#pragma unroll
  for (int n = 0; n < GRID; ++n) store(planes, frequency(n, x) * CHANNELS + lane, line[at(n)]);
#pragma unroll 2
  for (int n = 0; n < GRID; ++n) {
    const int k = frequency(n, x), place = k * CHANNELS + lane;
    const Complex h = load(planes, place), g = load(room, place), moved = load(sample, place);
    const Complex last = load(filter, place), begun = load(anchor, place);
    const Complex l = {0.0f + PENALTY * (g.re - h.re), 0.0f + PENALTY * (g.im - h.im)};
    const float of_sample = sum(moved.re * moved.re + moved.im * moved.im);
    const Complex v = {
        without(PENALTY * GROWTH, next_share, h.re, l.re, memory * last.re + first * begun.re),
        without(PENALTY * GROWTH, next_share, h.im, l.im, memory * last.im + first * begun.im)};
    const Complex fitted = fit(moved, v, label[k], label[FREQUENCIES + k], of_sample + power * next_total);
    store(filter, place, fitted);
    // The response where the sample has its middle: half of the spectrum stands for two halves.
    const float twice = x >= 1 && x < HALF - 1 ? 2.0f : 1.0f;
    planes[place] = twice * (fitted.re * moved.re + fitted.im * moved.im);
  }
  __syncthreads();
  if (x == 0) {
    float top = 0.0f;
#pragma unroll 16
    for (int k = 0; k < FREQUENCIES; ++k) top += planes[k * CHANNELS + lane];
    top = sum(top);
    if (lane == 0) filter[TOP] = top / (float)CELLS;
  }
}
