// The mean threshold in one pass, for all blocks: slower than that for blocks up to 127.
//
// target: compute_80, compute_90
//
// Oracle: crates/lockon-core/src/reference/threshold.rs, in the tests of crates/lockon-cuda/src/threshold.rs.
#include "box_fused.cuh"

// 1.5 * 2^23: added to a number below 2^22, it leaves that number rounded, half to even, in the low bits of
// the sum.
constexpr float ROUNDER = 12582912.0f;
constexpr int ROUNDER_BITS = 0x4b400000;

struct RoundedMean {
  static constexpr bool SQUARES = false;
  float scale;
  int offset;

  __device__ __forceinline__ int start() const { return 0; }
  __device__ __forceinline__ int verdict(int i, unsigned word, int s, unsigned, bool&) const {
    const float mean = __fmul_rn(__uint2float_rn(s), scale);
    const int rounded = __float_as_int(__fadd_rn(mean, ROUNDER)) - ROUNDER_BITS;
    return rounded - offset - int(word >> (8 * i) & 255);
  }
};

extern "C" __global__ void __launch_bounds__(BOX_THREADS)
    mean_fused_wide(const unsigned char* pixels, int pitch, int width, int height, unsigned char* mask,
                    unsigned long long* foreground, int radius, int inverse, Shares shares, float scale, int offset) {
  box_fused({pixels, pitch, width, height}, mask, foreground, radius, inverse, shares, RoundedMean{scale, offset});
}
