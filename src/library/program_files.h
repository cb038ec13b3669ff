// Places of files that belong to the program: beside it, or in the prefix that it is installed in.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>

namespace octet {

// The folder of the running program, or of liboctet.so where this code is in it. Empty where the
// system does not say.
std::filesystem::path program_folder();

// The first of these paths, relative to program_folder(), that is there; empty where none is.
std::string beside_program(std::initializer_list<const char*> paths);

}  // namespace octet
