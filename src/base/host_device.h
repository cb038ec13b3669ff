// Mark of functions that both host and device code call. nvcc lets a host function be called from
// device code in no other way (src/backends/cuda/CMakeLists.txt).
#pragma once

#ifdef __CUDACC__
#define OCTET_HOST_DEVICE __host__ __device__
#else
#define OCTET_HOST_DEVICE
#endif
