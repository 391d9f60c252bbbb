// The tensor cores of compute capability 9.0, as the NCC kernels use them: matrices of u8 from shared memory,
// sums of 32 bits in registers, barriers and copies of memory in bulk. ncc_wgmma.cu explains how ST becomes a product of
// matrices.
//
// Oracle: those of ncc_wgmma.cu and ncc_wgmma_map.cu, which include this.
#pragma once

// Steps of a part, 32 products deep each, and bytes that it takes: two rows a step and three for the
// y-offsets. A template of 32 rows is one part; docs/lab/ncc.md, "What is left", has other lengths.
constexpr int PART_STEPS = 18;
constexpr int PART_BYTES = (2 * PART_STEPS + 3) * 256;

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return unsigned(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier), "r"(parity)
      : "memory");
}

// Arrives at `barrier`, which waits for that many bytes of copies too.
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Copies global memory to shared memory, whole 16 bytes, and arrives at `barrier` when they are there.
__device__ __forceinline__ void bulk_copy(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// Describes an operand in shared memory without swizzle: core matrices of 8 rows of 16 bytes, `along_k` bytes
// from one to the next in K, `across` bytes in M or N.
__device__ __forceinline__ unsigned long long operand(unsigned address, unsigned along_k, unsigned across) {
  return (unsigned long long)(across >> 4) << 32 | (along_k >> 4) << 16 | address >> 4;
}

#define REGISTERS_4(d, i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define REGISTERS_8(d, i) REGISTERS_4(d, i), REGISTERS_4(d, i + 4)

// d += A B: 64 by 128 sums of 32 products.
__device__ __forceinline__ void multiply(int (&d)[64], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.u8.u8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1;"
      : REGISTERS_8(d, 0), REGISTERS_8(d, 8), REGISTERS_8(d, 16), REGISTERS_8(d, 24), REGISTERS_8(d, 32),
        REGISTERS_8(d, 40), REGISTERS_8(d, 48), REGISTERS_8(d, 56)
      : "l"(a), "l"(b));
}

// 64 by 96 sums.
__device__ __forceinline__ void multiply(int (&d)[48], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n96k32.s32.u8.u8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, %48, %49, 1;"
      : REGISTERS_8(d, 0), REGISTERS_8(d, 8), REGISTERS_8(d, 16), REGISTERS_8(d, 24), REGISTERS_8(d, 32),
        REGISTERS_8(d, 40)
      : "l"(a), "l"(b));
}

// 64 by 80 sums.
__device__ __forceinline__ void multiply(int (&d)[40], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n80k32.s32.u8.u8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39}, %40, %41, 1;"
      : REGISTERS_8(d, 0), REGISTERS_8(d, 8), REGISTERS_8(d, 16), REGISTERS_8(d, 24), REGISTERS_8(d, 32)
      : "l"(a), "l"(b));
}

// 64 by 32 sums.
__device__ __forceinline__ void multiply(int (&d)[16], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.u8.u8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1;"
      : REGISTERS_8(d, 0), REGISTERS_8(d, 8)
      : "l"(a), "l"(b));
}

// Makes the products so far a group. Without one at the end of a loop's body, ptxas makes its own, and waits
// for all.
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until only so many groups are left.
template <int PENDING>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// d += A B for so many steps of 32 products, PART_STEPS at most. Each step takes two rows of the image,
// `pitch` bytes apart; b moves on to those that follow.
template <int M>
__device__ __forceinline__ void multiply_part(int (&d)[M], unsigned long long a, unsigned long long& b, int pitch, int steps) {
  if (steps == PART_STEPS) {
#pragma unroll
    for (int step = 0; step < PART_STEPS; step++) {
      multiply(d, a, b);
      a += 512 >> 4;
      b += 2 * pitch >> 4;
    }
    commit_products();
  } else {
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      multiply(d, a, b);
      a += 512 >> 4;
      b += 2 * pitch >> 4;
      commit_products();
    }
  }
}

// Waits for all products.
template <int N>
__device__ __forceinline__ void wait_for_all_products(int (&d)[N / 2]) {
  wait_for_products<0>();
#pragma unroll
  for (int i = 0; i < N / 2; i++) asm volatile("" : "+r"(d[i])::"memory");
}

// Where a thread's sums of products lie in the tile: d[4j], d[4j + 1], d[4j + 2], d[4j + 3] are those of x,
// x + 16, x + 8, x + 24 in row y + 4j.
struct Place {
  int x, y;

  __device__ __forceinline__ int x_of(int number) const { return x + number / 2 % 2 * 8 + number % 2 * 16; }
  __device__ __forceinline__ int y_of(int number) const { return y + number / 4 * 4; }
};

extern "C" {

// A of all rows and columns, see ncc_wgmma.cu. One thread a byte of `spread`.
__global__ void spread_template(const unsigned char* pixels, int pitch, int w, int h, unsigned char* spread) {
  const int chunks = (w + 30) / 16, table_rows = 2 * ((h + 4) / 2) + 3;
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= chunks * table_rows * 256) return;
  const int k = index % 16, dx = index / 16 % 16, row = index / 256 % table_rows, chunk = index / 256 / table_rows;
  const int i = 16 * chunk + k - dx, j = row - 3;
  spread[index] = i >= 0 && i < w && j >= 0 && j < h ? pixels[j * pitch + i] : 0;
}

}  // extern "C"
