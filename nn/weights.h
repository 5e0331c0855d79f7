#pragma once
/// @file
/// The weights of a model on disk: its parameters, then its buffers, under their full names.

#include <string>
#include <vector>

#include "nn/module.h"
#include "nn/safetensors.h"
#include "nn/tied_weights.h"

namespace stagecoach {

/// Returns the weights of a module: handles on its parameters, then on its buffers.
NamedTensors weights_of(const Module& module);

/// The names under which weights are saved: ours, or those of the same model in PyTorch (nn/foreign_names.h).
enum class Names { own, pytorch };

/// Writes the weights as a safetensors file; equal weights give equal bytes. Throws DataError.
void save_weights(const std::string& path, const Module& module, Names names = Names::own);

/// Writes each of `parts`, such as the weights of a stage, as a file in `folder`, which is created if needed:
/// `model-00001-of-00004.safetensors` …, and then `model.safetensors.index.json`, which says what is in which. While
/// they are written there is no index. Throws DataError, and Error for a name that is in two parts.
void save_sharded_weights(const std::string& folder, const std::vector<NamedTensors>& parts, Names names = Names::own);

struct LoadSettings {
  /// Weights whose names begin so stay as they are, and may be missing or others in the file: {"fc."} leaves out the
  /// last layer of a resnet, which has another size for other classes.
  std::vector<std::string> except = {};
  /// Weights that are the same in the model, such as tied_head(): a file may have one of the two. Without it, one that
  /// is missing is never taken from another.
  TiedWeights::Names tied = {};
};

/// Reads the weights into a module that has memory, from a file, from the index of several, or from a folder with
/// either (`model.safetensors`). They may have the names of the same model in PyTorch (nn/foreign_names.h); those in
/// half precision (F16, BF16) are widened. If a name is missing or extra, or a shape or type differs, changes nothing
/// and throws DataError that lists each mismatch, or names a number that is NaN or infinite. Throws UsageError for an
/// `except` with which no weight begins.
void load_weights(const std::string& path, Module& module, const LoadSettings& settings = {});

/// Returns the weights that a file has for `model`, of which only names, shapes and types count, so that it may be on
/// Device meta: those that `keep` accepts by our names, such as the ones of a rank's layers. The others are not held in
/// memory, but must fit, too. Throws as load_weights() does.
NamedTensors load_weights_of(const std::string& path, const NamedTensors& model, const KeepTensor& keep,
                             const LoadSettings& settings = {});

}  // namespace stagecoach
