#include "nn/weights.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/throw_if.h"
#include "nn/foreign_names.h"
#include "nn/weights_index.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// Returns a float16 tensor of a file as float32, which is exact, and any other as it is.
Tensor widened(const Tensor& tensor) {
  if (tensor.dtype() != DType::float16) {
    return tensor;
  }
  const std::vector<Half> halves = tensor.to_vector<Half>();
  std::vector<float> floats(halves.size());
  std::transform(halves.begin(), halves.end(), floats.begin(), to_float);
  return Tensor::from(floats, tensor.shape());
}

NamedTensors named(const NamedTensors& weights, Names names) {
  return names == Names::pytorch ? with_pytorch_names(weights) : weights;
}

/// Removes the tensors whose names begin with `prefix`. Returns whether there were any.
bool remove_below(const std::string& prefix, NamedTensors& tensors) {
  return std::erase_if(tensors, [&](const auto& named) { return named.first.starts_with(prefix); }) > 0;
}

/// Returns the tensors of all files of an index.
TensorFile load_indexed(const fs::path& index, const KeepTensor& keep) {
  const WeightFiles files = read_weights_index(index);
  std::set<std::string> different;
  for (const auto& [name, file] : files) {
    different.insert(file);
  }
  TensorFile all;
  for (const std::string& file : different) {
    const auto is_here = [&](const std::string& name) {
      const auto found = files.find(name);
      return found != files.end() && found->second == file;
    };
    TensorFile part = load_tensors((index.parent_path() / file).string(),
                                   [&](const std::string& name) { return is_here(name) && keep(name); });
    std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(all.tensors));
    std::copy_if(part.contents.begin(), part.contents.end(), std::back_inserter(all.contents),
                 [&](const TensorInfo& info) { return is_here(info.name); });
  }
  throw_if<DataError>(all.contents.size() != files.size(),
                      "{}: its files have {} of the {} weights that it lists; download them "
                      "again",
                      index.string(), all.contents.size(), files.size());
  return all;
}

/// Returns the tensors of a file, of an index, or of a folder with either.
TensorFile load_file(const fs::path& path, const KeepTensor& keep) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const bool has_index = fs::exists(path / kIndexName, error);
    return load_file(path / (has_index ? kIndexName : "model.safetensors"), keep);
  }
  return is_weights_index(path) ? load_indexed(path, keep) : load_tensors(path.string(), keep);
}

/// Returns the tensors of a file, widened, without elements.
NamedTensors outline_of(const std::vector<TensorInfo>& contents) {
  NamedTensors outline;
  for (const TensorInfo& info : contents) {
    const DType type = info.dtype == DType::float16 ? DType::float32 : info.dtype;
    outline.emplace_back(info.name, Tensor::empty(info.shape, type, Device{DeviceType::meta}));
  }
  return outline;
}

}  // namespace

NamedTensors weights_of(const Module& module) {
  NamedTensors weights = module.named_parameters();
  for (auto& buffer : module.named_buffers()) {
    weights.push_back(std::move(buffer));
  }
  return weights;
}

void save_weights(const std::string& path, const Module& module, Names names) {
  save_tensors(path, {named(weights_of(module), names), {}});
}

void save_sharded_weights(const std::string& folder, const std::vector<NamedTensors>& parts, Names names) {
  std::error_code error;
  fs::create_directories(folder, error);
  throw_if<DataError>(static_cast<bool>(error), "folder {} cannot be created: {}; check the path and its permissions",
                      folder, error.message());
  const fs::path index = fs::path(folder) / kIndexName;
  fs::remove(index, error);  // so that old and new files are never read as one model
  WeightFiles files;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    const NamedTensors part = named(parts[i], names);
    for (const auto& [name, tensor] : part) {
      STAGECOACH_CHECK(files.emplace(name, file).second, "save_sharded_weights: '{}' is in two parts", name);
      bytes += static_cast<std::int64_t>(tensor.bytes());
    }
    save_tensors((fs::path(folder) / file).string(), {part, {}});
  }
  write_weights_index(index, files, bytes);
}

NamedTensors load_weights_of(const std::string& path, const NamedTensors& model, const KeepTensor& keep,
                             const LoadSettings& settings) {
  NamedTensors expected = model;
  for (const std::string& prefix : settings.keep) {
    throw_if<UsageError>(!remove_below(prefix, expected), "`keep`: no weight of the model begins with '{}'", prefix);
  }
  std::set<std::string> names;
  for (const auto& [name, tensor] : model) {
    names.insert(name);
  }
  const auto is_kept = [&](const std::string& name) { return names.contains(name) && keep(name); };
  const TensorFile file = load_file(path, [&](const std::string& given) {
    return is_kept(our_name(given, names)) || is_kept(tied_name(our_name(given, names), names));
  });
  NamedTensors found = with_our_names(outline_of(file.contents), model);
  NamedTensors tensors = with_our_names(file.tensors, model);
  for (const std::string& prefix : settings.keep) {
    remove_below(prefix, found);
    remove_below(prefix, tensors);
  }
  require_matching(found, expected, "'" + path + "'");
  std::erase_if(tensors, [&](const auto& named) { return !keep(named.first); });
  for (auto& [name, tensor] : tensors) {
    tensor = widened(tensor);
  }
  return tensors;
}

void load_weights(const std::string& path, Module& module, const LoadSettings& settings) {
  NamedTensors ours = weights_of(module);
  const NamedTensors tensors = load_weights_of(
      path, ours, [](const std::string&) { return true; }, settings);
  for (const std::string& prefix : settings.keep) {
    remove_below(prefix, ours);
  }
  copy_by_name(tensors, ours, "'" + path + "'");
}

}  // namespace stagecoach
