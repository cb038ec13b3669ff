// Functions that the program asks of liboctet_mpi.so, which alone is linked with an MPI library: no
// types of C++ or of MPI pass between them. One thread at a time calls it.
#pragma once

#include <cstdint>

extern "C" {

#define OCTET_MPI_API_VERSION 1

enum OctetMpiMoveKind : int32_t {
  OCTET_MPI_ALL_GATHER = 0,
  OCTET_MPI_ALL_TO_ALL = 1,
  OCTET_MPI_BROADCAST = 2
};

// One collective over all ranks. `bytes` of each rank's part move, at most 2^30; parts of different
// ranks are `stride` bytes apart, in `send` where each rank is sent its own, and in `received`.
struct OctetMpiMove {
  enum OctetMpiMoveKind kind;
  int32_t root;  // of a broadcast, which is from and to `received`
  const void* send;
  void* received;
  int64_t bytes, stride;
};

// Functions that give int give 0, or another number, and then problem() says what went wrong.
struct OctetMpiApi {
  int32_t version;
  // Once in a process: makes it one of the ranks that the launcher started.
  int (*start)(int32_t* rank, int32_t* size);
  // Begins a collective, and asks whether it has ended; one at a time.
  int (*begin)(const struct OctetMpiMove* move);
  int (*is_done)(int32_t* done);
  // All ranks together, when none has failed.
  int (*finish)(void);
  const char* (*problem)(void);
  const char* (*library)(void);  // its name and version
};

const struct OctetMpiApi* octet_mpi_api(void);
}
