#include "tests/structure/words.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <set>
#include <span>

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// Words in a row, case and all, and what to write instead.
const std::map<std::string, std::string> kInstead{
    // English
    {"shall", "should"},
    {"wishes", "options"},
    {"but for", "except for"},
    {"for ever", "forever"},
    {"is no number", "is NaN, or must be finite"},
    {"is no finite number", "must be finite"},
    {"in vain", "without success, or leave it out"},
    {"stands for itself", "is on its own"},
    {"right behind", "right after"},
    {"goes before its choice", "overrides it"},
    {"unrest", "noise"},
    // the field's terms
    {"truths", "labels"},
    {"pictures", "images"},
    {"picture", "image"},
    {"Wanted", "needs_input_grad"},
    {"on_gradient", "a gradient hook"},
    {"is_only_handle", "donatable"},
    {"empty_beside", "empty_like"},
    {"inverse_deviation", "rstd"},
    {"give_back", "deallocate"},
    {"picked", "argmax"},
    {"Divisor", "FastDivmod"},
    {"load_if", "a predicated load"},
    {"WindowBits", "a validity mask"},
    {"Patches", "implicit im2col"},
    {"Patience", "WaitPolicy"},
    {"Mail", "the control channel"},
    {"Parcel", "exchange buffers"},
    {"bury", "leak until exit"},
    {"lend_core", "set_spinning"},
    {"agree_on", "broadcast_from_rank_zero"},
    {"start_alike", "broadcast_module"},
    {"Launched", "the launch environment"},
    {"Background", "CommThread"},
    {"Walk", "DependencyReplay"},
    {"holder", "stage_to_rank"},
    {"dealt", "distributed: round-robin, or contiguous"},
    {"Way", "a strategy"},
    {"Team", "a topology"},
    {"Admission", "drain control"},
    {"BatchStream", "a micro-batch iterator"},
    {"Wishes", "options"},
};

/// "a line a rank" means one line per rank.
const std::set<std::string> kCounted{"file",    "layers", "line", "lines",  "number",
                                     "numbers", "object", "one",  "stages", "steps"};
const std::set<std::string> kShared{"batch", "class",  "device", "epoch",   "image",     "layer",
                                    "line",  "link",   "micro",  "message", "parameter", "process",
                                    "rank",  "second", "stage",  "step",    "weight"};

/// The first two hold the words themselves; the scripts of the others' programs have words of their own, and
/// generated images are drawn by a key that must stay.
bool is_exempt(const std::string& file) {
  constexpr const char* kExempt[] = {"tests/structure/", "tests/golden/", "tests/benchmarks/", "datasets/generated.cpp",
                                     "tests/docs/check_site.py"};
  return std::any_of(std::begin(kExempt), std::end(kExempt), [&](const char* start) { return file.find(start) == 0; });
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : line + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  return words;
}

/// What is wrong with the line at this word, or "".
std::string find_at(std::span<const std::string> words) {
  std::string phrase;
  for (std::size_t count = 0; count < std::min<std::size_t>(words.size(), 4); ++count) {
    phrase += (count == 0 ? "" : " ") + words[count];
    if (const auto found = kInstead.find(phrase); found != kInstead.end()) {
      return "'" + phrase + "': write " + found->second;
    }
  }
  if (words.size() > 2 && kCounted.contains(words[0]) && (words[1] == "a" || words[1] == "an") &&
      kShared.contains(words[2])) {
    return "'" + words[0] + " " + words[1] + " " + words[2] + "': write per";
  }
  return "";
}

/// Returns whether the line is a text with a placeholder and a noun such as "rank(s)" after it.
bool leaves_the_plural_open(const std::string& line) {
  const std::size_t number = line.find("} ");
  for (const char* ending : {"(s)", "(es)"}) {
    const std::size_t at = line.find(ending, std::min(number, line.size()));
    if (at != std::string::npos && std::islower(static_cast<unsigned char>(line[at - 1])) != 0) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> files_of(const fs::path& root) {
  const std::set<std::string> kinds{".h", ".cpp", ".cu", ".cuh", ".sh", ".py", ".cmake", ".md"};
  std::vector<std::string> files;
  for (const char* folder : {"core", "nn", "datasets", "parallel", "chapters", "tests", "docs", "scripts", "cmake"}) {
    if (!fs::exists(root / folder)) {
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string file = entry.path().lexically_relative(root).generic_string();
      if (kinds.contains(entry.path().extension()) && !is_exempt(file)) {
        files.push_back(file);
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<std::string> home_made_words(const fs::path& root) {
  std::vector<std::string> found;
  for (const std::string& file : files_of(root)) {
    std::ifstream text(root / file);
    int number = 0;
    for (std::string line; std::getline(text, line);) {
      ++number;
      const std::string where = file + ":" + std::to_string(number) + ": ";
      if (leaves_the_plural_open(line)) {
        found.push_back(where + "'(s)' after a number: write counted(…), core/base/phrases.h");
      }
      const std::vector<std::string> words = words_of(line);
      for (std::size_t i = 0; i < words.size(); ++i) {
        if (const std::string wrong = find_at(std::span(words).subspan(i)); !wrong.empty()) {
          found.push_back(where + wrong);
        }
      }
    }
  }
  return found;
}

}  // namespace stagecoach
