// How results and messages reach standard output and standard error.
//
// Text passes through printable(), so that names from files do nothing to a terminal; JSON stays
// JSON. Once a signal has asked the run to stop, nothing waits for a reader that takes no more.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace octet {

// Opens /dev/null for each of the descriptors 0, 1, 2 that is closed. Otherwise the next files to
// be opened would get these numbers, and messages would be written into them. The first call of
// main.
void open_standard_descriptors();

// Results; kept until there are enough of them, or until finish_output().
void write_out(std::string_view text);
template <typename... Args>
void write_line(fmt::format_string<Args...> format, Args&&... args) {
  write_out(fmt::format(format, std::forward<Args>(args)...) + "\n");
}
// The same for what programs read: values, files, generated text. As it is, unless a terminal shows
// it.
void write_data(std::string_view bytes);

// A part of a result that stands out: green on a terminal, else between two brackets of its own.
void write_marked(std::string_view text);

// Messages; at once. What cannot be written is lost.
void write_err(std::string_view text);
// A message of one line; of a text that is longer than a few screens, its beginning and its end:
// messages quote files, and a file may have a name of many megabytes where a word should be.
void write_message(std::string_view prefix, std::string_view text);
// Removes the line that was begun on the terminal behind standard error.
void clear_line();

// Writes what is kept so far: text that is to be seen as it comes.
void flush_output();
// Writes what is left of the results. Throws Error{io} when some were lost for another reason than
// a closed pipe: a run goes on, and ends well, when its reader leaves.
void finish_output();

}  // namespace octet
