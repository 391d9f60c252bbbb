// The mean threshold in one pass, for blocks up to 127.
//
// target: compute_80, compute_90
//
// Oracle: crates/lockon-core/src/reference/threshold.rs, in the tests of crates/lockon-cuda/src/threshold.rs.
#include "box_fused.cuh"

// No S / n is half an integer, for n is odd, and in blocks up to 127 the nearest is further from one than the
// two roundings to f32 can move it. So round(S * scale) is the rounded quotient, and I > round(S / n) -
// offset if and only if S - n * I + bias < 0, bias = (n - 1) / 2 - n * offset.
struct ExactMean {
  static constexpr bool SQUARES = false;
  int area, bias;

  __device__ __forceinline__ int start() const { return bias; }
  __device__ __forceinline__ int verdict(int i, unsigned word, int s, unsigned, bool&) const {
    const int halves = i % 2 == 0 ? -area & 0xffff : -area * 65536;  // area < 2^15
    return i < 2 ? add_low_bytes(s, halves, word) : add_high_bytes(s, halves, word);
  }
};

extern "C" __global__ void __launch_bounds__(BOX_THREADS)
    mean_fused(const unsigned char* pixels, int pitch, int width, int height, unsigned char* mask,
               unsigned long long* foreground, int radius, int inverse, Shares shares, float, int offset) {
  const int area = (2 * radius + 1) * (2 * radius + 1);
  box_fused({pixels, pitch, width, height}, mask, foreground, radius, inverse, shares,
            ExactMean{area, (area - 1) / 2 - area * offset});
}
