#include "tests/structure/source_rules.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

/// What each floor may include.
const std::map<std::string, std::set<std::string>> kFloors{
    {"core", {"core"}},
    {"nn", {"core", "nn"}},
    {"datasets", {"core", "datasets"}},
    {"parallel", {"core", "nn", "datasets", "parallel"}},
    {"chapters", {"core", "nn", "datasets", "parallel", "chapters"}},
};

/// The folders of parallel/, from the top down: what each may include of the others. Communicators of a transport stand
/// on what all communicators share; schedules only on drawing, and neither knows tensors; only the launch knows every
/// transport.
const std::map<std::string, std::set<std::string>> kParallelFolders{
    {"drawing", {}},
    {"comm", {}},
    {"comm/tcp", {"comm"}},
    {"comm/thread", {"comm"}},
    {"comm/mpi", {"comm"}},
    {"comm/nccl", {"comm", "comm/tcp"}},
    {"comm/gloo", {"comm", "comm/tcp"}},
    {"launch", {"comm", "comm/tcp", "comm/thread", "comm/mpi", "comm/nccl", "comm/gloo"}},
    {"schedule", {"drawing"}},
    {"playground", {"schedule"}},
    {"pipeline", {"comm", "schedule"}},
    {"data_parallel", {"drawing", "comm", "schedule", "pipeline"}},
    {"data_parallel/sharded", {"comm", "data_parallel"}},
    {"tensor_parallel", {"comm"}},
    {"sequence_parallel", {"comm", "tensor_parallel"}},
    {"training", {"comm", "launch", "pipeline", "tensor_parallel"}},
    {"wrappers",
     {"comm", "launch", "schedule", "pipeline", "data_parallel", "data_parallel/sharded", "tensor_parallel"}},
    {"rpc", {"comm", "launch"}},
    {"advise", {"comm", "launch", "schedule", "pipeline", "data_parallel", "tensor_parallel", "training"}},
    {".", {"launch", "wrappers"}},
};

/// "core" of "core/autograd/node.h"
std::string top_folder(const std::string& path) { return path.substr(0, path.find('/')); }

/// "comm/tcp" of "parallel/comm/tcp/control_channel.h"
std::string parallel_folder(const std::string& path) {
  return fs::path(path).parent_path().lexically_relative("parallel").generic_string();
}

/// The folders that know no tensor, and so include nothing else of core.
bool knows_no_tensor(const std::string& file) {
  return std::ranges::any_of(
      std::array{"core/base/", "parallel/drawing/", "parallel/schedule/", "parallel/playground/"},
      [&](const char* folder) { return file.starts_with(folder); });
}

bool may_include(const std::string& file, const std::string& target) {
  if (knows_no_tensor(file) && top_folder(target) != "parallel" && !target.starts_with("core/base/")) {
    return false;
  }
  if (top_folder(file) != "parallel" || top_folder(target) != "parallel") {
    return kFloors.at(top_folder(file)).contains(top_folder(target));
  }
  const std::string from = parallel_folder(file);
  const std::string to = parallel_folder(target);
  const auto below = kParallelFolders.find(from);
  return from == to || (below != kParallelFolders.end() && below->second.contains(to));
}

/// The floor, and in parallel/ and core/base/ the folder.
std::string floor_or_folder(const std::string& file) {
  const bool has_rules_of_its_own = top_folder(file) == "parallel" || knows_no_tensor(file);
  return has_rules_of_its_own ? fs::path(file).parent_path().generic_string() : top_folder(file);
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot read " + path.string());
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The files under `folder` with one of these endings, as paths from `root`, sorted. None if there is no such folder.
std::vector<std::string> files(const fs::path& root, const std::string& folder, const std::set<std::string>& endings) {
  std::vector<std::string> found;
  if (fs::is_directory(root / folder)) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && endings.contains(entry.path().extension().string())) {
        found.push_back(fs::relative(entry.path(), root).generic_string());
      }
    }
  }
  std::ranges::sort(found);
  return found;
}

/// All sources of all floors.
std::vector<std::string> floor_sources(const fs::path& root) {
  std::vector<std::string> all;
  for (const auto& [floor, may_include] : kFloors) {
    std::ranges::copy(files(root, floor, {".h", ".cpp", ".cuh", ".cu"}), std::back_inserter(all));
  }
  return all;
}

/// All sources of all floors, and of the tests.
std::vector<std::string> sources_and_tests(const fs::path& root) {
  std::vector<std::string> all = floor_sources(root);
  std::ranges::copy(files(root, "tests", {".h", ".cpp"}), std::back_inserter(all));
  return all;
}

/// Calls body(match, "file:line") for every match of `pattern` in the file, line by line.
template <class Body>
void for_each_match(const fs::path& root, const std::string& file, const std::regex& pattern, const Body& body) {
  std::istringstream text(read(root / file));
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    for (std::sregex_iterator match(line.begin(), line.end(), pattern), end; match != end; ++match) {
      body(*match, file + ":" + std::to_string(number));
    }
  }
}

/// Calls body(text, "file:line") for every string literal of the libraries, which are all floors but the chapters.
template <class Body>
void for_each_library_text(const fs::path& root, const Body& body) {
  const std::regex literal_or_comment(R"re("(?:[^"\\]|\\.)*"|'"'|//.*)re");
  for (const std::string& file : floor_sources(root)) {
    if (top_folder(file) != "chapters") {
      for_each_match(root, file, literal_or_comment, [&](const std::smatch& match, const std::string& place) {
        if (match.str().front() == '"') {
          body(match.str(), place);
        }
      });
    }
  }
}

/// The words of every CMakeLists.txt between the file and the root, each as a path from the root.
bool is_listed(const fs::path& root, const std::string& source) {
  for (fs::path folder = fs::path(source).parent_path();; folder = folder.parent_path()) {
    if (fs::exists(root / folder / "CMakeLists.txt")) {
      const std::string text =
          std::regex_replace(read(root / folder / "CMakeLists.txt"), std::regex("#[^\n]*|[()]"), " ");
      std::istringstream words(text);
      const std::string wanted = fs::path(source).lexically_relative(folder.empty() ? "." : folder).generic_string();
      if (std::find(std::istream_iterator<std::string>(words), {}, wanted) != std::istream_iterator<std::string>()) {
        return true;
      }
    }
    if (folder.empty()) {
      return false;
    }
  }
}

}  // namespace

std::vector<std::string> wrong_includes(const fs::path& root) {
  const std::regex include(R"(^\s*#\s*include\s*(["<])([^">]+)[">])");
  std::vector<std::string> wrong;
  for (const std::string& file : floor_sources(root)) {
    for_each_match(root, file, include, [&](const std::smatch& match, const std::string& place) {
      const std::string target = match[2];
      const bool from_root = target.find('/') != std::string::npos && kFloors.contains(top_folder(target));
      if (!from_root) {
        if (match[1] == "\"") {
          wrong.push_back(place + ": \"" + target + "\" is no path from the project's root into a floor");
        }
      } else if (!may_include(file, target)) {
        wrong.push_back(place + ": " + floor_or_folder(file) + "/ may not include " + target);
      }
    });
  }
  return wrong;
}

std::vector<std::string> unlisted_sources(const fs::path& root) {
  std::vector<std::string> folders{"tests"};
  for (const auto& [floor, may_include] : kFloors) {
    folders.push_back(floor);
  }
  std::vector<std::string> unlisted;
  for (const std::string& folder : folders) {
    for (const std::string& file : files(root, folder, {".cpp", ".cu"})) {
      if (!is_listed(root, file)) {
        unlisted.push_back(file + ": in no CMakeLists.txt");
      }
    }
  }
  return unlisted;
}

std::vector<std::string> threads_without_sanitizer(const fs::path& root) {
  const std::regex list("ONE_THREAD([^()]*)LIBRARIES");
  const std::regex starts_threads("#include \"(core/asynchronous|parallel/rpc/\\w+|parallel/wrappers/\\w+).h\"");
  std::vector<std::string> found;
  for (const std::string& file : files(root, "tests", {".txt"})) {
    const std::string text = read(root / file);
    std::smatch match;
    std::regex_search(text, match, list);
    std::istringstream sources(match.str(1));
    for (std::string source; sources >> source;) {
      const std::string test = (fs::path(file).parent_path() / source).generic_string();
      const std::string code = read(root / test);
      if (std::regex_search(code, match, starts_threads)) {
        found.push_back(test + ": " + match.str(1) + ".h starts threads; list it before ONE_THREAD");
      }
    }
  }
  return found;
}

std::vector<std::string> foreign_random_numbers(const fs::path& root) {
  const std::regex pattern(R"(#\s*include\s*<random>|\bstd::s?rand\b)");
  std::vector<std::string> found;
  for (const std::string& file : floor_sources(root)) {
    for_each_match(root, file, pattern, [&](const std::smatch& match, const std::string& place) {
      found.push_back(place + ": " + match.str() + ", instead of core/random.h");
    });
  }
  return found;
}

std::vector<std::string> careless_json(const fs::path& root) {
  const std::regex pattern(R"(\b(Json|json|ordered_json)::(parse|accept|sax_parse|from_\w+)\b|"_json\b)");
  std::vector<std::string> found;
  for (const std::string& file : floor_sources(root)) {
    if (file != "core/base/parse_json.h") {
      for_each_match(root, file, pattern, [&](const std::smatch& match, const std::string& place) {
        found.push_back(place + ": " + match.str() + ", instead of core/base/parse_json.h");
      });
    }
  }
  return found;
}

std::vector<std::string> flags_in_libraries(const fs::path& root) {
  const std::regex other_programs(R"((\w\.sh|\w\.py|srun|mpirun|nvcc|cmake) --[\w-]+)");
  const std::regex flag(R"((?:^|[^-])(--[a-z{][^\s",;)]*))");
  std::vector<std::string> found;
  for_each_library_text(root, [&](const std::string& text, const std::string& place) {
    const std::string own = std::regex_replace(text, other_programs, "");
    for (std::sregex_iterator match(own.begin(), own.end(), flag), end; match != end; ++match) {
      found.push_back(place + ": " + match->str(1) + ", instead of a `parameter` (chapters/common/name_flags.cpp)");
    }
  });
  return found;
}

std::vector<std::string> parameters_without_flag(const fs::path& root) {
  const auto text_of = [&](const char* file) { return fs::exists(root / file) ? read(root / file) : ""; };
  const std::string known = text_of("chapters/common/name_flags.cpp");
  const std::string flags = text_of("chapters/common/flag_table.cpp");
  const auto has_flag = [&](std::string parameter) {  // in its backticks
    const bool is_listed = known.find(parameter) != std::string::npos;
    std::replace(parameter.begin(), parameter.end(), '_', '-');
    return is_listed || flags.find("{\"" + parameter.substr(1, parameter.size() - 2) + "\",") != std::string::npos;
  };
  const std::regex parameter("`[\\w:]+`");
  std::vector<std::string> found;
  for_each_library_text(root, [&](const std::string& text, const std::string& place) {
    for (std::sregex_iterator match(text.begin(), text.end(), parameter), end; match != end; ++match) {
      if (!has_flag(match->str())) {
        found.push_back(place + ": " + match->str() + " has no flag in chapters/common/name_flags.cpp");
      }
    }
  });
  return found;
}

std::vector<std::string> calls_of_one_system(const fs::path& root) {
  const std::regex names(
      R"(\b(eventfd|accept4|pipe2|dup3|close_range|prctl|epoll_\w+|timerfd_\w+|signalfd|memfd_create|fallocate|statx)\b)"
      R"(|\b(sched_[gs]etaffinity|cpu_set_t|gettid|madvise|mremap|syscall|renameat2|malloc_trim|getrandom|sigtimedwait|program_invocation_\w+)\b)"
      R"(|\b(SOCK_CLOEXEC|SOCK_NONBLOCK|MSG_NOSIGNAL|O_TMPFILE|O_PATH|_SC_\w*PHYS_PAGES)\b|"/(proc|sys)/|<linux/)");
  std::vector<std::string> found;
  for (const std::string& file : floor_sources(root)) {
    const std::string stem = fs::path(file).stem().string();
    if (!stem.ends_with("_linux") && !stem.ends_with("_posix")) {
      for_each_match(root, file, names, [&](const std::smatch& match, const std::string& place) {
        found.push_back(place + ": " + match.str() + ", instead of core/base/system.h");
      });
    }
  }
  return found;
}

std::vector<std::string> missing_algorithm_includes(const fs::path& root) {
  const std::regex call(
      R"(\bstd::(all_of|any_of|none_of|for_each|count|count_if|find|find_if|copy|copy_n|copy_if|fill|fill_n|sort)"
      R"(|stable_sort|transform|equal|reverse|remove_if|unique|min|max|clamp|minmax_element|min_element|max_element)"
      R"(|lower_bound|upper_bound|is_sorted|shuffle|rotate|search)\()");
  const std::string include = "#include <algorithm>";
  const auto has_include = [&](const fs::path& file) {
    return fs::exists(root / file) && read(root / file).find(include) != std::string::npos;
  };
  std::vector<std::string> missing;
  for (const std::string& file : sources_and_tests(root)) {
    if (has_include(file) || has_include(fs::path(file).replace_extension(".h"))) {
      continue;
    }
    for_each_match(root, file, call, [&](const std::smatch& match, const std::string& place) {
      missing.push_back(place + ": std::" + match[1].str() + " without " + include);
    });
  }
  return missing;
}

std::vector<std::string> dead_links(const fs::path& root) {
  // [text](target) and ![picture](target), without a "scheme:" and without the place on the page; not f[i](x), and
  // no lambda.
  const std::regex link(R"((?:^|[^\w])\[[^\]]+\]\(([^():# &]+)(#[^) ]*)?\))");
  std::vector<std::string> pages = files(root, "docs", {".md"});
  for (const std::string& page : files(root, "chapters", {".md"})) {
    pages.push_back(page);
  }
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() == ".md") {
      pages.push_back(entry.path().filename().string());
    }
  }
  std::vector<std::string> dead;
  for (const std::string& page : pages) {
    for_each_match(root, page, link, [&](const std::smatch& match, const std::string& place) {
      if (!fs::exists(root / fs::path(page).parent_path() / match[1].str())) {
        dead.push_back(place + ": " + match[1].str() + " is not there");
      }
    });
  }
  return dead;
}

}  // namespace stagecoach
