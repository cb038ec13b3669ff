// liboctet_mpi.so: module_api.h by the MPI library that the machine has.
#include <mpi.h>

#include <string>

#include "comm/mpi/module_api.h"

namespace {

std::string problem_text;
MPI_Comm ranks = MPI_COMM_NULL;
MPI_Request request = MPI_REQUEST_NULL;

int check(int code) {
  if (code == MPI_SUCCESS) return 0;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  problem_text.assign(text, static_cast<size_t>(length));
  return 1;
}

int start(int32_t* rank, int32_t* size) {
  // Asked of each call; the library's own answer to an error is to end the process.
  int offered = 0, own_rank = 0, n_ranks = 0;
  if (check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &offered)) != 0) return 1;
  if (check(MPI_Comm_dup(MPI_COMM_WORLD, &ranks)) != 0) return 1;
  MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
  MPI_Comm_rank(ranks, &own_rank);
  MPI_Comm_size(ranks, &n_ranks);
  *rank = own_rank;
  *size = n_ranks;
  if (offered >= MPI_THREAD_SERIALIZED) return 0;
  problem_text = "it does not let a process have threads (MPI_THREAD_SERIALIZED)";
  return 1;
}

// A part of `bytes` whose successor lies `stride` bytes behind it.
class Part {
 public:
  Part(int64_t bytes, int64_t stride) {
    MPI_Datatype run;
    MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &run);
    MPI_Type_create_resized(run, 0, stride, &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&run);
  }
  // The library keeps it as long as a collective needs it.
  ~Part() { MPI_Type_free(&type_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

int begin(const OctetMpiMove* move) {
  const auto n = static_cast<int>(move->bytes);
  if (move->kind == OCTET_MPI_BROADCAST)
    return check(MPI_Ibcast(move->received, n, MPI_BYTE, move->root, ranks, &request));
  const Part part(move->bytes, move->stride);
  if (move->kind == OCTET_MPI_ALL_GATHER) {
    int rank = 0;
    MPI_Comm_rank(ranks, &rank);
    const char* const own = static_cast<const char*>(move->received) + rank * move->stride;
    const void* const send = move->send == own ? MPI_IN_PLACE : move->send;
    return check(
        MPI_Iallgather(send, n, MPI_BYTE, move->received, 1, part.type(), ranks, &request));
  }
  return check(
      MPI_Ialltoall(move->send, 1, part.type(), move->received, 1, part.type(), ranks, &request));
}

int is_done(int32_t* done) {
  int flag = 0;
  const int code = check(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
  *done = flag;
  return code;
}

int finish() {
  MPI_Comm_free(&ranks);
  return check(MPI_Finalize());
}

const char* problem() {
  return problem_text.c_str();
}

const char* library() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

const OctetMpiApi api = {OCTET_MPI_API_VERSION, start, begin, is_done, finish, problem, library};

}  // namespace

extern "C" __attribute__((visibility("default"))) const OctetMpiApi* octet_mpi_api() {
  return &api;
}
