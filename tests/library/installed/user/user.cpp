// A user's project: user TEXT FOLDER trains a tiny model on a text, and lets it write.
#include <octet/octet.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) try {
  const std::string text = argv[1], folder = argv[argc - 1];
  const octet::Machine machine;
  octet::Training training(machine, {.text = "{model: {hidden: 32, layers: 1, heads: 2, ffn: 64, "
                                             "seq: 32}, train: {steps: 3, batch: 2}}",
                                     .sets = {"data.train=[" + text + "]", "out=" + folder}});
  while (const auto step = training.step()) std::printf("%.4f\n", static_cast<double>(step->loss));
  octet::Model model(machine, folder);
  return model.generate("The ", {.max_tokens = 4}).tokens.size() == 4 ? 0 : 1;
} catch (const octet::Error& error) {
  std::fprintf(stderr, "user: %s\n", error.what());
  return 2;
}
