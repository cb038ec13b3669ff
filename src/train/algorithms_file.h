// algorithms.json in the folder of a run: which algorithms its products ran with, so that a resumed
// run takes the same ones and has the same bits. Format: docs/formats/run.md.
#pragma once

#include <string>

#include "base/files.h"
#include "plan/catalogue.h"

namespace octet {

// Writes the catalogue's autotune cache, as one act; nothing where it is empty.
void write_autotune_cache(Files& files, const std::string& path, const Catalogue& catalogue);

// Gives the file's choices to the catalogue before kernels are prepared. Returns "", or why they
// are chosen anew: they are another machine's. Throws Error{bad_data} for a file that is damaged.
std::string load_autotune_cache(const Files& files, const std::string& path, Catalogue& catalogue);

}  // namespace octet
