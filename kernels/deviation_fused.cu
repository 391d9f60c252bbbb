// Sauvola's and Niblack's thresholds in one pass.
//
// target: compute_80, compute_90
//
// Oracle: crates/lockon-core/src/reference/threshold.rs, in the tests of crates/lockon-cuda/src/threshold.rs.
#include "box_fused.cuh"

// As the plain kernels.
struct ExactDeviation {
  bool is_niblack;
  int block;
  double k;

  // A shortcut for flat windows, whose mean is the pixel and deviation 0.
  __device__ __forceinline__ bool is_above(int pixel, unsigned s, unsigned ss) const {
    const unsigned long long n = block * block;
    const double value = pixel;
    if (n * ss == (unsigned long long)s * s) {
      return value > (is_niblack ? value + k * 0.0 : value * (1.0 + k * (0.0 / 128.0 - 1.0)));
    }
    return is_niblack ? Niblack{k, block * block}.is_above(pixel, s, ss) : Sauvola{k, block * block}.is_above(pixel, s, ss);
  }
};

// The comparison in f32: with A and B as below, I > T if and only if A > B * s, which is A |A| > B
// |B| * v with v = s * s. Where roundings could change the sign of the difference, the rule is unsure.
//
//   Sauvola  A = I - m * (1 - k), B = m * k / 128
//   Niblack  A = I - m, B = k
//
// With k = |k|: A is off by 1e-4 (1 + k) at most, B by 5e-7 k, v, which is below 16257, by 0.03, and |B| <= 2
// k. So the difference is off by less than 1e-3 (1 + k) |A| + 0.25 k^2, by a factor of several.
struct Deviation {
  static constexpr bool SQUARES = true;
  ExactDeviation exact;
  float inverse_area, rest, share, base, slope, floor;

  __device__ __forceinline__ Deviation(ExactDeviation exact)
      : exact(exact), inverse_area(1.0f / float(exact.block * exact.block)) {
    const bool is_niblack = exact.is_niblack;
    const float k = float(exact.k), size = fabsf(k);
    rest = is_niblack ? -1.0f : k - 1.0f;
    share = is_niblack ? 0.0f : k / 128.0f;
    base = is_niblack ? k : 0.0f;
    slope = 1e-3f * (1.0f + size);
    floor = 0.25f * size * size + 1e-6f * (1.0f + size) * (1.0f + size);
  }
  __device__ __forceinline__ int start() const { return 0; }
  __device__ __forceinline__ int verdict(int i, unsigned word, int s, unsigned ss, bool& is_unsure) const {
    // The pixel's byte as the last of 2^23 in f32.
    const float pixel = __int_as_float(pick(word, 0x4b000000, 0x7440 + i)) - 8388608.0f;
    const float mean = __uint2float_rn(s) * inverse_area;
    const float variance = __fmaf_rn(__uint2float_rn(ss), inverse_area, -(mean * mean));
    const float a = __fmaf_rn(mean, rest, pixel), b = __fmaf_rn(mean, share, base);
    const float difference = __fmaf_rn(b * fabsf(b), variance, -(a * fabsf(a)));
    // Infinities and NaN of a k that f32 does not hold are unsure as well.
    is_unsure |= !(fabsf(difference) > __fmaf_rn(slope, fabsf(a), floor));
    return __float_as_int(difference);
  }
};

// Sauvola, or Niblack where `is_niblack` is not 0.
extern "C" __global__ void __launch_bounds__(BOX_THREADS)
    deviation_fused(const unsigned char* pixels, int pitch, int width, int height, unsigned char* mask,
                    unsigned long long* foreground, int radius, int inverse, Shares shares, double k, int is_niblack) {
  box_fused({pixels, pitch, width, height}, mask, foreground, radius, inverse, shares,
            Deviation({is_niblack != 0, 2 * radius + 1, k}));
}
