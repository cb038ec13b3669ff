// How many cores this process may run on.
#pragma once

namespace octet {

// At least 1; a pool of 0 threads has as many.
int usable_cores();

}  // namespace octet
