// What the C interface of the playground says natively: for each case of standard input a line of hashes, which
// agreement_test.mjs compares with those of WebAssembly. A case is one line with tabs between its parts: a function and
// its arguments (line ends of a table are ';'), then receives, sends_wait, recompute, and the costs between commas.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "core/base/parse.h"
#include "parallel/playground/playground.h"

namespace stagecoach {
namespace {

/// FNV-1a, 32 bits.
std::uint32_t hash_of(const void* data, std::size_t bytes) {
  std::uint32_t hash = 2166136261U;
  for (std::size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 16777619U;
  }
  return hash;
}

std::uint32_t hash_of_text(int which) {
  const std::string text = playground_text(which);
  return hash_of(text.data(), text.size());
}

int set_schedule(const std::vector<std::string>& parts) {
  const auto whole = [&](std::size_t i) { return std::stoi(parts[i]); };
  if (parts[0] == "make") {
    return playground_make(parts[1].c_str(), whole(2), whole(3), whole(4), whole(5));
  }
  if (parts[0] == "make_pipedream") {
    return playground_make_pipedream(whole(1), whole(2), whole(3), whole(4));
  }
  std::string table = parts[1];
  for (char& letter : table) {
    letter = letter == ';' ? '\n' : letter;
  }
  return playground_read(table.c_str());
}

void set_costs(const std::string& costs) {
  double* next = playground_costs();
  for (const std::string_view cost : split_text(costs, ',')) {
    *next++ = number_from<double>(cost).value();
  }
}

std::string row_of(const std::vector<std::string>& parts) {
  constexpr std::size_t kDoubles = (1U << PLAYGROUND_TIMES) | (1U << PLAYGROUND_RANK_TIMES) |
                                   (1U << PLAYGROUND_FIGURES) | (1U << PLAYGROUND_EXPLANATION);
  if (set_schedule(parts) == 0) {
    return fmt::format("0 {}", hash_of_text(PLAYGROUND_MESSAGE));
  }
  const std::size_t rest = parts.size() - 4;
  const auto whole = [&](std::size_t i) { return std::stoi(parts[i]); };
  set_costs(parts.back());
  const int status = playground_simulate(whole(rest), whole(rest + 1), whole(rest + 2));
  std::string row = fmt::format("{} {}", status, hash_of_text(PLAYGROUND_MESSAGE));
  if (status == 2) {
    playground_explain();
  }
  for (int array = PLAYGROUND_RANK_BEGIN; array <= PLAYGROUND_TRAFFIC && status > 0; ++array) {
    const std::size_t size = (kDoubles >> array & 1U) != 0 ? sizeof(double) : sizeof(std::int32_t);
    const auto length = static_cast<std::size_t>(playground_length(array));
    row += fmt::format(" {}", hash_of(playground_array(array), size * length));
  }
  if (status == 2) {
    const double idle = playground_idle(3);
    row += fmt::format(" {} {} {}", hash_of(&idle, sizeof idle), hash_of_text(PLAYGROUND_TABLE),
                       hash_of_text(PLAYGROUND_LOWERED));
  }
  row += fmt::format(" {}", playground_repair() == 1 ? hash_of_text(PLAYGROUND_TABLE) : 0);
  return row;
}

}  // namespace
}  // namespace stagecoach

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> parts;
    for (const std::string_view part : stagecoach::split_text(line, '\t')) {
      parts.emplace_back(part);
    }
    std::cout << stagecoach::row_of(parts) << "\n";
  }
  return 0;
}
