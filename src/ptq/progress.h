// Decisions of a quantization so far, kept in its output folder so that an interrupted one goes on:
// a file a site, and the choices that they were made with.
#pragma once

#include <string>

#include "base/files.h"
#include "base/json.h"
#include "ptq/calibrate.h"

namespace octet {

// go_on: with what was decided before, where all that decides the results is the same.
// begin_anew: in the place of an unfinished quantization, whatever it was.
enum class PtqStart : uint8_t { go_on, begin_anew };

class PtqProgress {
 public:
  // `identity`: an object of all that decides the results. The folder must be free, empty, or hold
  // an unfinished quantization; throws Error{invalid_argument} otherwise, and where an unfinished
  // one that is to go on has another identity: the error names what differs.
  PtqProgress(Files& files, const std::string& out, const Json& identity, PtqStart start);

  int64_t n_found() const { return n_found_; }  // sites of before
  SiteStore store(const std::vector<PtqSite>& sites);
  // Removes them: the model is about to be whole.
  void remove();

 private:
  std::string site_path(size_t site) const;
  void check(const std::string& path, const Json& identity) const;
  Files& files_;
  std::string out_, folder_;
  int64_t n_found_ = 0;
};

}  // namespace octet
