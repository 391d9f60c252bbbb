// The comparisons of the thresholds of neighbourhoods: the rules of the box thresholds and the fixed point of
// the Gaussian.
//
// The formulas are at the top of threshold.cu. Every rounding is written out, so that all kernels agree to
// the bit.
//
// Oracle: that of threshold.cu and of *_fused*.cu, which include this.
#pragma once

#include "window_sums.cuh"

// Fraction bits of the Gaussian weights, of a row after the first pass, and of the mean before it is rounded:
// the numeric contract's.
constexpr int WEIGHT_BITS = 24;
constexpr int ROW_BITS = 16;
constexpr int MEAN_BITS = WEIGHT_BITS + ROW_BITS;

// The pixel at (x, y), or the border's nearest.
__device__ __forceinline__ unsigned pixel_at(Image image, int x, int y) {
  return image.pixels[size_t(clamp(y, image.height - 1)) * image.pitch + clamp(x, image.width - 1)];
}

// The rules: is `pixel` above the threshold that the sums S and SS of its neighbourhood give?

struct Mean {
  float scale;
  int offset;

  __device__ __forceinline__ bool is_above(int pixel, unsigned s, unsigned) const {
    // S < 2^24 is exact in f32. One multiplication and one rounding, half to even, as cv::boxFilter.
    return pixel > __float2int_rn(__fmul_rn(__uint2float_rn(s), scale)) - offset;
  }
};

// n * SS - S * S of a window of n pixels: exact and not negative. It is below 2^49, so that f64 holds it too.
__device__ __forceinline__ unsigned long long spread(unsigned sum, unsigned squares, int area) {
  return (unsigned long long)area * squares - (unsigned long long)sum * sum;
}

// The deviation that this spread is: sqrt((n * SS - S * S) / (n * n)).
__device__ __forceinline__ double deviation_of(unsigned long long spread, int area) {
  const unsigned long long n = area;
  return sqrt(double(spread) / double(n * n));
}

// m = S / n and s, of a window of n pixels.
struct Moments {
  double m, s;

  __device__ __forceinline__ Moments(unsigned sum, unsigned squares, int area)
      : m(double(sum) / double(area)), s(deviation_of(spread(sum, squares, area), area)) {}
};

struct Sauvola {
  double k;
  int area;

  __device__ __forceinline__ bool is_above(int pixel, unsigned s, unsigned ss) const {
    const Moments of(s, ss, area);
    return double(pixel) > of.m * (1.0 + k * (of.s / 128.0 - 1.0));
  }
};

struct Niblack {
  double k;
  int area;

  __device__ __forceinline__ bool is_above(int pixel, unsigned s, unsigned ss) const {
    const Moments of(s, ss, area);
    return double(pixel) > of.m + k * of.s;
  }
};
