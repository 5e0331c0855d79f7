#pragma once
/// @file
/// The index of a model whose weights are in several files, as Hugging Face's libraries write and read it: the file
/// `model.safetensors.index.json`, `{"metadata": {"total_size": 48}, "weight_map": {"fc.bias":
/// "model-00001-of-….safetensors"}}`.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace stagecoach {

inline constexpr const char* kIndexName = "model.safetensors.index.json";

/// The file of each weight, without its folder.
using WeightFiles = std::map<std::string, std::string>;

/// Returns whether `path` is named as an index.
bool is_weights_index(const std::filesystem::path& path);

/// Reads an index. Throws DataError with the path if it is not valid, or names a file in another folder.
WeightFiles read_weights_index(const std::filesystem::path& path);

/// Writes an index, of weights that have `bytes` bytes in all. Throws DataError.
void write_weights_index(const std::filesystem::path& path, const WeightFiles& files, std::int64_t bytes);

}  // namespace stagecoach
