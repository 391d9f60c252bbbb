// Hands what was found in a frame to the host.
//
// A copy by the copy engine would keep the next mask waiting, and emptying the list by another call the next
// frame's kernels.

// The list's header and a `Candidate` of ncc.cuh, in words of 64 bits.
constexpr int HEADER = 2;
constexpr int CANDIDATE = 7;

// Copies the header and the first candidates, `room` of them at most, to `host`, page-locked memory of the
// host's, and empties the header. One block, of any size.
extern "C" __global__ void publish(unsigned long long* found, unsigned long long* host, int room) {
  // The other half of the word counts something else.
  const int candidates = min(unsigned(found[0]), unsigned(room));
  for (int i = threadIdx.x; i < HEADER + candidates * CANDIDATE; i += blockDim.x) host[i] = found[i];
  // Everyone has read the header.
  __syncthreads();
  if (threadIdx.x < HEADER) found[threadIdx.x] = 0;
}
