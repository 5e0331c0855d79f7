#pragma once
/// @file
/// Whether a run is continued with the settings and the data that it was trained with.

#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "datasets/fingerprint.h"
#include "parallel/pipeline/rank_role.h"
#include "parallel/training/run_options.h"

namespace stagecoach {

/// Returns whether a training with the settings `saved`, a JSON object, can be continued with `now`. An older version
/// may have saved fewer settings, and behaved as with today's defaults, or more, which no longer shape the training.
bool trains_alike(const std::string& saved, const std::string& now);

/// Returns a fingerprint as JSON, for the manifest of a checkpoint.
std::string to_json(const Fingerprint& data);
/// Parses to_json's text. Throws DataError, which names `where`, if it is damaged.
Fingerprint fingerprint_from_json(const std::string& text, const std::string& where);

/// Returns the parts of a batch as text, and back, for the same manifest.
std::string to_text(const BatchParts& parts);
BatchParts parts_from_text(const std::string& text, const std::string& where);

/// Returns what a user should know when a run continues with `now`: whether the weights end with other bytes, because
/// gradients are added in other parts. Empty if the parts are the same, or not known.
std::vector<std::string> parts_notes(const std::optional<BatchParts>& saved, const std::optional<BatchParts>& now);

/// Thrown for data other than those of the checkpoint. An older checkpoint would not help.
class OtherData : public DataError {
 public:
  using DataError::DataError;
};

/// Throws OtherData if `now` differs from the data of a checkpoint unless the options accept that, or if the
/// number of classes differs. `saved` is empty for a checkpoint of a version that did not store it.
void require_same_data(const std::optional<Fingerprint>& saved, const Fingerprint& now, const RunOptions& options);
/// Returns what a user should know when a run continues with `now`: that the data differ, or that nobody can tell.
std::vector<std::string> data_notes(const std::optional<Fingerprint>& saved, const Fingerprint& now);

}  // namespace stagecoach
