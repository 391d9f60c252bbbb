// Arithmetic on numbers that share a register, and copies of 16 bytes, each one instruction.
//
// Oracle: that of *_fused*.cu, ncc_*.cu and objects.cu, which include this.
#pragma once

// The 32-bit word that `selector` picks from the 8 bytes of low and high: digit i of it, 0 to 7, names byte i
// of the result.
__device__ __forceinline__ unsigned pick(unsigned low, unsigned high, unsigned selector) {
  return __byte_perm(low, high, selector);
}

// sum + pair[0] * factors[0] + pair[1] * factors[1], the pair being 16-bit halves (not negative), the factors
// the low two bytes (signed).
__device__ __forceinline__ int add_pair(int sum, unsigned pair, int factors) {
  int result;
  asm("dp2a.lo.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(pair), "r"(factors), "r"(sum));
  return result;
}

// Moves a window's sum by one: half i of one pair of 16-bit numbers enters, half j of another pair leaves.
__device__ __forceinline__ int slide(int sum, unsigned enters, int i, unsigned leaves, int j) {
  int result;
  asm("dp2a.lo.u32.s32 %0, %1, %2, %3;\n\tdp2a.lo.u32.s32 %0, %4, %5, %0;"
      : "=&r"(result)
      : "r"(enters), "r"(i == 0 ? 0x0001 : 0x0100), "r"(sum), "r"(leaves), "r"(j == 0 ? 0x00ff : 0xff00));
  return result;
}

// sum + half[0] * byte[0] + half[1] * byte[1], the halves signed, the bytes not: the low two or the high two.
__device__ __forceinline__ int add_low_bytes(int sum, int halves, unsigned bytes) {
  int result;
  asm("dp2a.lo.s32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(halves), "r"(bytes), "r"(sum));
  return result;
}
__device__ __forceinline__ int add_high_bytes(int sum, int halves, unsigned bytes) {
  int result;
  asm("dp2a.hi.s32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(halves), "r"(bytes), "r"(sum));
  return result;
}

// sum + the four bytes of the word, each signed.
__device__ __forceinline__ int add_bytes(int sum, unsigned word) {
  int result;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(word), "r"(0x01010101), "r"(sum));
  return result;
}

// sum + the products of four bytes each, none of them signed.
__device__ __forceinline__ unsigned dot4(unsigned a, unsigned b, unsigned sum) {
  asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}

// Four bytes, 255 where a number is negative and 0 where not.
__device__ __forceinline__ unsigned spread_signs(const int* numbers) {
  // A digit with its highest bit set spreads a byte's sign.
  const auto pair = [](int low, int high) {
    unsigned word;
    asm("prmt.b32 %0, %1, %2, 0xfbfb;" : "=r"(word) : "r"(low), "r"(high));
    return word;
  };
  return pick(pair(numbers[0], numbers[1]), pair(numbers[2], numbers[3]), 0x5410);
}

// Copies 16 bytes from device to shared memory, both multiples of 16, without waiting.
__device__ __forceinline__ void copy_piece(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(unsigned(__cvta_generic_to_shared(to))),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}

// Waits for this thread's copies.
__device__ __forceinline__ void wait_for_pieces() { asm volatile("cp.async.wait_all;" ::: "memory"); }
