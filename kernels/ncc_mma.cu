// NCC on the tensor cores of compute capability 7.5. All of it is in ncc_mma.cuh.
#include "ncc_mma.cuh"
