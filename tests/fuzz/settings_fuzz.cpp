// config.json: chapters/common/settings.h.

#include <string>

#include "chapters/common/settings.h"
#include "core/error.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  Settings settings;
  if (fuzz::accepts<DataError>([&] { settings = settings_from_json(text, "config.json"); })) {
    const Settings again = settings_from_json(to_json(settings), "config.json");
    fuzz::require(to_json(again) == to_json(settings), "the settings are others after they were written and read");
    fuzz::require(first_difference(settings, again).empty(), "settings differ from themselves");
    fuzz::require(!settings_table(settings).empty() && !training_json(settings).empty(), "nothing is printed");
  }
  return 0;
}
