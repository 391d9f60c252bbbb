// Passes a frame's findings to the host.
//
// A copy by the copy engine would delay the next mask, and another call to empty the list would delay the
// next frame's kernels.
//
// Oracle: the CPU backend, in banks_thresholds_and_masks_of_a_full_ring_are_the_cpus and
// a_frame_with_more_candidates_than_there_is_room_for_is_searched_again (crates/lockon-cuda/src/tests.rs).

// The list's header and a `Candidate` of ncc.cuh, in words of 64 bits.
constexpr int HEADER = 2;
constexpr int CANDIDATE = 7;

// Copies the header and the first candidates, `room` of them at most, to `host`, page-locked memory of the
// host's, and empties the header. One block, of any size.
extern "C" __global__ void publish(unsigned long long* found, unsigned long long* host, int room) {
  // The high half of the word counts searches that had more suspects than room.
  const int candidates = min(unsigned(found[0]), unsigned(room));
  for (int i = threadIdx.x; i < HEADER + candidates * CANDIDATE; i += blockDim.x) host[i] = found[i];
  // All threads have read the header.
  __syncthreads();
  if (threadIdx.x < HEADER) found[threadIdx.x] = 0;
}
