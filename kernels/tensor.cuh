// Products of matrices of bytes on the tensor cores, by a warp: D += A * B, A having 16 rows and B 8 columns.
//
// With g = lane / 4 and c = lane % 4, word s of a lane is
//   of A   bytes 16 s + 4 c to 16 s + 4 c + 3 of row g (first) or g + 8 (second)
//   of B   the same bytes of column g
// and its four sums are D[g][2 c], D[g][2 c + 1], D[g + 8][2 c], D[g + 8][2 c + 1].
//
// Oracle: that of gaussian_fused.cu, which includes this.
#pragma once

struct Sums {
  int at[4];
};

// 32 columns of A: words 0 and 1.
__device__ __forceinline__ void multiply_add(Sums& d, uint2 a0, uint2 a1, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d.at[0]), "+r"(d.at[1]), "+r"(d.at[2]), "+r"(d.at[3])
      : "r"(a0.x), "r"(a0.y), "r"(a1.x), "r"(a1.y), "r"(b0), "r"(b1));
}

// 16 columns of A: word 0.
__device__ __forceinline__ void multiply_add(Sums& d, uint2 a, unsigned b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+r"(d.at[0]), "+r"(d.at[1]), "+r"(d.at[2]), "+r"(d.at[3])
      : "r"(a.x), "r"(a.y), "r"(b));
}
