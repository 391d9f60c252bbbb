// target: compute_80
//
// NCC on the tensor cores of compute capability 8.0 and later. All of it is in ncc_mma.cuh.
#include "ncc_mma.cuh"
