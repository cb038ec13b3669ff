// Text that is there where nobody names any: what `octet compare` trains on without --data.
#pragma once

#include <string>
#include <vector>

namespace octet {

// Files and folders, those that are not there among them: the project's own, seen from its folder,
// the documents of an installation, and the headers of the machine.
std::vector<std::string> own_texts();

}  // namespace octet
