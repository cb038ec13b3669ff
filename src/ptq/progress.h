// What a quantization has decided so far, kept in its output folder so that an interrupted one goes
// on: a file a site, and the choices that they were made with.
#pragma once

#include <string>

#include "base/files.h"
#include "ptq/calibrate.h"

namespace octet {

class PtqProgress {
 public:
  // `identity`: text of all that decides the results. The folder must be free, empty, or hold an
  // unfinished quantization of the same identity; throws Error{invalid_argument} otherwise.
  PtqProgress(Files& files, const std::string& out, const std::string& identity);

  int64_t n_found() const { return n_found_; }  // sites of before
  SiteStore store(const std::vector<PtqSite>& sites);
  // Removes them: the model is about to be whole.
  void remove();

 private:
  std::string site_path(size_t site) const;
  Files& files_;
  std::string folder_;
  int64_t n_found_ = 0;
};

}  // namespace octet
