// octet report --serve: the page over HTTP, which follows runs that are being written.
#pragma once

#include <string>
#include <vector>

#include "cli/common.h"

namespace octet {

// Listens on 127.0.0.1 alone, prints the address as a line on standard output, and serves until a
// signal ends the process; `port` 0 is any that is free. Requests under another host's name are
// refused, so that no other page may read this one.
//   GET /             the page, which asks for newer data every other second
//   GET /data.json    the data of report_json() with "version"; of ?after=VERSION that is the
//                     newest: 204
// Throws Error{bad_data} as RunReader does, Error{io} where the port is taken. What a run's folder
// cannot give later is a warning, and the page keeps what it had.
[[noreturn]] void serve_report(const std::vector<std::string>& runs, int port,
                               const GlobalOptions& options);

}  // namespace octet
