// config.json: chapters/common/settings.h.

#include <nlohmann/json.hpp>

#include <string>

#include "chapters/common/settings.h"
#include "core/base/error.h"
#include "tests/fuzz/all_flags.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

namespace {

/// A number that no setting can hold must be refused, not cut: 4294967298 is not 2 ranks.
void require_same_values(const std::string& given, const std::string& read) {
  using Json = nlohmann::json;
  const Json before = Json::parse(given);
  const Json after = Json::parse(read);
  for (const auto& [name, value] : after.items()) {
    fuzz::require(!before.contains(name) || before.at(name) == value,
                  ("the value that was read is not the one in the file: " + name).c_str());
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Chapter chapter = [] {
    Chapter all = fuzz::chapter_of_all_flags();
    all.defaults.training.momentum = 0.9;  // what a run would have filled in
    return all;
  }();
  const std::string text(fuzz::text_of(data, size));
  Settings settings;
  if (fuzz::accepts<DataError, UsageError>([&] { settings = settings_from_json(text, "config.json", chapter); })) {
    require_same_values(text, config_json(settings));
    const Settings again = settings_from_json(config_json(settings), "config.json", chapter);
    fuzz::require(config_json(again) == config_json(settings),
                  "the settings are others after they were written and read");
    fuzz::require(first_difference(settings, again).empty(), "settings differ from themselves");
    fuzz::require(!settings_table(settings).empty() && !training_json(settings).empty(), "nothing is printed");
  }
  return 0;
}
