#include "datasets/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

TEST(Files, AFolderIsListedSortedAndWithoutHiddenNames) {
  const TemporaryFolder folder;
  for (const char* name : {"b", "a", ".hidden", "C"}) {
    write_text_file(folder / name, "");
  }
  EXPECT_EQ(list_folder(folder.path()), (std::vector<fs::path>{folder / "C", folder / "a", folder / "b"}));
}

TEST(Files, ReadingNamesThePathOfWhatIsNoFile) {
  const TemporaryFolder folder;
  expect_error<DataError>([&] { read_file(folder / "gone"); }, {"gone cannot be opened", "No such file"});
  expect_error<DataError>([&] { read_file(folder.path()); }, {"expected a file, got a folder"});
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error<DataError>([&] { read_file(folder / "pipe"); }, {"pipe is not a regular file"});
  expect_error<DataError>([&] { list_folder(folder / "gone"); }, {"gone is missing"});
}

TEST(Files, AFileThatShrinksIsNoticed) {
  const TemporaryFolder folder;
  write_text_file(folder / "file", std::string(10000, 'x'));
  FileReader file(folder / "file");
  EXPECT_EQ(file.size(), 10000);
  fs::resize_file(folder / "file", 5000);
  std::vector<char> bytes(10000);
  expect_error<DataError>([&] { file.read(bytes.data(), bytes.size()); }, {"byte 5000", "truncated"});
}

}  // namespace
}  // namespace stagecoach
