#include <cmath>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "base/call_lock.h"
#include "base/error.h"
#include "base/philox.h"
#include "python/optimizer/octet_optimizer.h"
#include "python/optimizer/step.h"

#define OCTET_EXPORT __attribute__((visibility("default")))

namespace {

thread_local std::string last_error;

int failed(octet::ErrorCode code, const char* what) {
  last_error = what;
  return 1 + static_cast<int>(code);
}

template <typename Fn>
int guarded(Fn&& fn) {
  try {
    fn();
    return 0;
  } catch (const octet::Error& error) {
    return failed(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(octet::ErrorCode::device, "[optimizer] out of memory");
  } catch (const std::exception& error) {
    return failed(octet::ErrorCode::internal, error.what());
  }
}

void check_moment(const OctetOptimizer& optimizer, const OctetMoment& moment) {
  const OctetStateLayout layout = octet::state_layout(optimizer, moment.n, OCTET_F32);
  const bool is_first = moment.which == 0;
  const bool has_codes = (is_first ? layout.m_groups : layout.v_groups) > 0;
  const bool is_there = moment.n == 0 || (moment.stored != nullptr && moment.values != nullptr &&
                                          (!has_codes || moment.meta != nullptr));
  if ((is_first || moment.which == 1) && is_there) return;
  throw octet::Error(octet::ErrorCode::invalid_argument,
                     "[optimizer] expected moment 0 or 1 and its memory, got {}", moment.which);
}

}  // namespace

extern "C" {

OCTET_EXPORT const char* octet_optimizer_error(void) {
  return last_error.c_str();
}

OCTET_EXPORT int octet_optimizer_version(void) {
  return OCTET_OPTIMIZER_VERSION;
}

OCTET_EXPORT uint64_t octet_optimizer_name(const char* name) {
  return octet::name_hash(name);
}

OCTET_EXPORT int octet_optimizer_open(const OctetOptimizerOptions* options,
                                      OctetOptimizer** optimizer) {
  return guarded([&] { *optimizer = std::make_unique<OctetOptimizer>(*options).release(); });
}

OCTET_EXPORT void octet_optimizer_close(OctetOptimizer* optimizer) {
  delete optimizer;
}

OCTET_EXPORT int octet_optimizer_layout(const OctetOptimizer* optimizer, int64_t n, int32_t dtype,
                                        OctetStateLayout* layout) {
  return guarded([&] { *layout = octet::state_layout(*optimizer, n, dtype); });
}

OCTET_EXPORT int octet_optimizer_formats(const OctetOptimizer* optimizer, OctetFormats* formats) {
  return guarded([&] { *formats = octet::formats_of(*optimizer); });
}

OCTET_EXPORT int octet_optimizer_squares(OctetOptimizer* optimizer, const OctetTensor* tensors,
                                         int64_t n_tensors, double* squares) {
  return guarded([&] {
    const octet::CallLock::Held held = optimizer->lock.enter("optimizer");
    *squares = octet::sum_of_squares(*optimizer, {tensors, static_cast<size_t>(n_tensors)});
  });
}

OCTET_EXPORT int octet_optimizer_step(OctetOptimizer* optimizer, const OctetTensor* tensors,
                                      int64_t n_tensors, OctetStep* step) {
  return guarded([&] {
    const octet::CallLock::Held held = optimizer->lock.enter("optimizer");
    octet::step_tensors(*optimizer, {tensors, static_cast<size_t>(n_tensors)}, *step);
  });
}

OCTET_EXPORT int octet_optimizer_decode(const OctetOptimizer* optimizer,
                                        const OctetMoment* moment) {
  return guarded([&] {
    check_moment(*optimizer, *moment);
    octet::decode_moment(*optimizer, *moment);
  });
}

OCTET_EXPORT int octet_optimizer_encode(const OctetOptimizer* optimizer,
                                        const OctetMoment* moment) {
  return guarded([&] {
    check_moment(*optimizer, *moment);
    octet::encode_moment(*optimizer, *moment);
  });
}
}
