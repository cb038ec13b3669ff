// Types of include/octet, converted to those of the folders below.
#pragma once

#include "base/log.h"
#include "library/open_backend.h"
#include "octet/machine.h"
#include "octet/messages.h"

namespace octet {

Log log_of(const MessageSink& sink);
BackendRequest request_of(const Machine& machine);

// The vector instructions of a process are one choice (cpu::limit_isa), that of its first machine.
// Throws Error{invalid_argument} where this request makes another; scalar, of the reference
// kernels, is none. Before its back end is opened.
void expect_isa_of_process(const BackendRequest& request);
// Once it is open.
void keep_isa_of_process(const BackendRequest& request);

}  // namespace octet
