#include "nn/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/throw_if.h"
#include "nn/foreign_names.h"
#include "nn/models.h"
#include "nn/weights_index.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelName = "model.safetensors";

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

/// Returns the file with the weights in a folder. Throws DataError, which names the files that it has, for one without
/// a model.
fs::path file_in(const fs::path& folder) {
  std::vector<std::string> others;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == kIndexName) {
      return entry.path();
    }
    if (entry.path().extension() == ".safetensors") {
      others.push_back(entry.path().string());
    }
  }
  if (fs::exists(folder / kModelName, error)) {
    return folder / kModelName;
  }
  std::sort(others.begin(), others.end());
  throw DataError(fmt::format("folder {} has neither {} nor {}; {}", folder.string(), kIndexName, kModelName,
                              others.empty() ? "give a file with weights"
                                             : fmt::format("give the file itself: {}", fmt::join(others, " or "))));
}

/// Returns the tensors of a file, of an index, or of a folder with either.
TensorFile load_file(const fs::path& path, const KeepTensor& keep) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return load_file(file_in(path), keep);
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

/// Adds the missing ones of tied weights.
NamedTensors with_tied(NamedTensors tensors, const TiedWeights::Names& tied) {
  for (const auto& [first, copy] : tied) {
    const Tensor of_first = find_tensor(tensors, first);
    const Tensor of_copy = find_tensor(tensors, copy);
    if (of_first.defined() != of_copy.defined()) {
      tensors.emplace_back(of_first.defined() ? copy : first, of_first.defined() ? of_first : of_copy);
    }
  }
  return tensors;
}

/// Throws DataError unless a file has the expected weights. Says what to do about a head that is tied in the file only.
void require_weights(const NamedTensors& found, const NamedTensors& expected, const std::string& path) try {
  require_matching(found, expected, "'" + path + "'");
} catch (const DataError& error) {
  const auto [embedding, head] = tied_head().front();
  const bool has_both = find_tensor(expected, embedding).defined() && find_tensor(expected, head).defined();
  const bool has_one = find_tensor(found, embedding).defined() != find_tensor(found, head).defined();
  throw_if<DataError>(has_both && has_one,
                      "{}; the file has one matrix for '{}' and '{}': use `tie_head` (in a program, LoadSettings::tied "
                      "as well), or leave the missing one as it is drawn with `except`",
                      error.what(), embedding, head);
  throw;
}

template <class T>
void require_finite(const std::string& name, const Tensor& tensor, const std::string& path) {
  const std::vector<T> values = tensor.to_vector<T>();
  const auto bad = std::find_if(values.begin(), values.end(), [](T value) { return !std::isfinite(value); });
  if (bad == values.end()) {
    return;
  }
  std::vector<std::int64_t> index;
  std::int64_t rest = bad - values.begin();
  for (int d = tensor.dims() - 1; d >= 0; --d) {
    index.insert(index.begin(), rest % tensor.size(d));
    rest /= tensor.size(d);
  }
  throw DataError(
      fmt::format("'{}': expected finite weights, got {} in {} at [{}]; give a file of a training that has "
                  "not diverged",
                  path, std::isnan(*bad) ? "NaN" : "an infinite number", name, fmt::join(index, ", ")));
}

/// Throws DataError for a weight that is NaN or infinite.
void require_finite(const NamedTensors& tensors, const std::string& path) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.dtype() == DType::float32) {
      require_finite<float>(name, tensor, path);
    } else if (tensor.dtype() == DType::float64) {
      require_finite<double>(name, tensor, path);
    }
  }
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
  for (const std::string& prefix : settings.except) {
    throw_if<UsageError>(!remove_below(prefix, expected), "`except`: no weight of the model begins with '{}'", prefix);
  }
  std::set<std::string> names;
  for (const auto& [name, tensor] : model) {
    names.insert(name);
  }
  const auto is_kept = [&](const std::string& name) { return names.contains(name) && keep(name); };
  const TensorFile file = load_file(path, [&](const std::string& given) {
    const std::string name = our_name(given, names);
    return is_kept(name) || std::any_of(settings.tied.begin(), settings.tied.end(), [&](const auto& pair) {
             return (name == pair.first && is_kept(pair.second)) || (name == pair.second && is_kept(pair.first));
           });
  });
  NamedTensors found = with_tied(with_our_names(outline_of(file.contents), model), settings.tied);
  NamedTensors tensors = with_tied(with_our_names(file.tensors, model), settings.tied);
  for (const std::string& prefix : settings.except) {
    remove_below(prefix, found);
    remove_below(prefix, tensors);
  }
  require_weights(found, expected, path);
  std::erase_if(tensors, [&](const auto& named) { return !keep(named.first); });
  for (auto& [name, tensor] : tensors) {
    tensor = widened(tensor);
  }
  require_finite(tensors, path);
  return tensors;
}

void load_weights(const std::string& path, Module& module, const LoadSettings& settings) {
  NamedTensors ours = weights_of(module);
  const NamedTensors tensors = load_weights_of(
      path, ours, [](const std::string&) { return true; }, settings);
  for (const std::string& prefix : settings.except) {
    remove_below(prefix, ours);
  }
  copy_by_name(tensors, ours, "'" + path + "'");
}

}  // namespace stagecoach
