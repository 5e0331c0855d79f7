#include "nn/weights_index.h"

#include "core/base/parse_json.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"

namespace stagecoach {

bool is_weights_index(const std::filesystem::path& path) { return path.filename().string().ends_with(".index.json"); }

WeightFiles read_weights_index(const std::filesystem::path& path) {
  const std::string advice = "download the model again, or give its safetensors";
  const auto json = parse_json<nlohmann::json>(read_text(path, advice), path.string(), advice);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  throw_if<DataError>(!json.is_object() || map == json.end() || !map->is_object(),
                      "{}: expected an object with 'weight_map', which has a file for each weight; {}", path.string(),
                      advice);
  WeightFiles files;
  for (const auto& [name, file] : map->items()) {
    const auto* text = file.get_ptr<const std::string*>();
    throw_if<DataError>(
        text == nullptr || text->empty() || std::filesystem::path(*text).filename() != *text || text->starts_with("."),
        "{}: expected the name of a file beside it for '{}', got {}; {}", path.string(), printable(name),
        printable(file.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)), advice);
    files.emplace(name, *text);
  }
  return files;
}

void write_weights_index(const std::filesystem::path& path, const WeightFiles& files, std::int64_t bytes) {
  const nlohmann::ordered_json json = {{"metadata", {{"total_size", bytes}}}, {"weight_map", files}};
  write_text(path, json.dump(2) + "\n");
}

}  // namespace stagecoach
