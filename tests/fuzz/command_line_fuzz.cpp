// Command lines, an argument per line: chapters/common/flags.h.

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "chapters/common/flags.h"
#include "core/base/error.h"
#include "tests/fuzz/all_flags.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Chapter chapter = fuzz::chapter_of_all_flags();
  std::cout.rdbuf(nullptr);  // --help
  std::istringstream lines{std::string(fuzz::text_of(data, size))};
  std::vector<std::string> arguments{chapter.program};
  for (std::string line; std::getline(lines, line);) {
    arguments.push_back(line);
  }
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  Settings settings;
  try {
    if (!fuzz::accepts<UsageError, DataError>(
            [&] { settings = parse_flags(static_cast<int>(argv.size()), argv.data(), chapter); })) {
      return 0;
    }
  } catch (const HelpShown&) {
    return 0;
  }
  std::string json;
  if (!fuzz::accepts<UsageError>([&] { json = config_json(settings); })) {  // a name that is not UTF-8
    return 0;
  }
  fuzz::require(config_json(settings_from_json(json, "config.json", chapter)) == json,
                "--resume would read other settings");
  return 0;
}
