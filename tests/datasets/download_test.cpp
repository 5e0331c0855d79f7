// Tests scripts/download_cifar10.sh without a network: PATH holds stand-ins for the tools that it calls.

#include <sys/wait.h>

#include <cstdlib>

#include "support.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr const char* kChecksum = "c32a1d4ab5d03f1284b67883e8d87530";

class Download : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "bin");
    for (const std::string tool : {"bash", "sed", "wc", "cut", "mkdir", "mktemp", "mv", "rm", "touch", "tar", "gzip",
                                   "truncate", "md5sum", "dirname"}) {
      for (const char* place : {"/usr/bin/", "/bin/"}) {
        if (fs::exists(place + tool) && !fs::exists(folder_ / "bin" / tool)) {
          fs::create_symlink(place + tool, folder_ / "bin" / tool);
        }
      }
    }
  }

  /// A tool made of shell lines, in place of the real one.
  void stand_in(const std::string& tool, const std::string& lines) {
    const fs::path path = folder_ / "bin" / tool;
    fs::remove(path);
    write_text_file(path, "#!/bin/bash\n" + lines + "\n");
    fs::permissions(path, fs::perms::owner_all);
  }

  /// A stand-in for curl that writes `content` to the file after --output, and says that it ran.
  void curl_gives(const std::string& content) {
    stand_in("curl", "touch '" + (folder_ / "curl-ran").string() +
                         "'\nwhile [[ $1 != --output ]]; do shift; done\nprintf '" + content + "' >\"$2\"");
  }

  /// Runs the script on folder_/data; its output is in output_.
  int run() {
    const fs::path log = folder_ / "log";
    const std::string command = "PATH='" + (folder_ / "bin").string() + "' bash '" STAGECOACH_DOWNLOAD_SCRIPT "' '" +
                                data_.string() + "' >'" + log.string() + "' 2>&1";
    const int status = std::system(command.c_str());
    output_ = text_of_file(log);
    return WEXITSTATUS(status);
  }

  bool said(const std::string& part) const { return output_.find(part) != std::string::npos; }
  bool curl_ran() const { return fs::exists(folder_ / "curl-ran"); }
  void checksum_is(const std::string& sum) { stand_in("md5sum", "echo '" + sum + "  -'"); }
  void make_files(const fs::path& where) {
    for (const char* name :
         {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
      write_text_file(where / (std::string(name) + ".bin"), "");
      fs::resize_file(where / (std::string(name) + ".bin"), 30730000);  // sparse: takes no disk
    }
  }

  TemporaryFolder folder_;
  fs::path data_ = folder_ / "data";
  std::string output_;
};

TEST_F(Download, SaysWhenNoToolIsThere) {
  EXPECT_EQ(run(), 1);
  EXPECT_TRUE(said("neither curl nor wget")) << output_;
  EXPECT_TRUE(said("apt install curl")) << output_;
}

TEST_F(Download, SaysWhenThereIsNoNetwork) {
  stand_in("curl", "exit 6");
  EXPECT_EQ(run(), 1);
  EXPECT_TRUE(said("the download failed; check the network")) << output_;
  EXPECT_TRUE(said("--data generated")) << output_;
  EXPECT_TRUE(fs::is_empty(data_));
}

TEST_F(Download, DeletesWhatHasTheWrongChecksum) {
  curl_gives("a login page");
  EXPECT_EQ(run(), 1);
  EXPECT_TRUE(said("wrong checksum")) << output_;
  EXPECT_TRUE(fs::is_empty(data_));
}

TEST_F(Download, UsesWgetWithoutCurl) {
  stand_in("wget", "while [[ $1 != --output-document ]]; do shift; done\nprintf page >\"$2\"");
  EXPECT_EQ(run(), 1);
  EXPECT_TRUE(said("wrong checksum")) << output_;
}

TEST_F(Download, UnpacksARightArchiveWithoutFetchingIt) {
  checksum_is(kChecksum);
  curl_gives("must not be called");
  write_text_file(data_ / "cifar-10-binary.tar.gz", "stands for the archive");
  make_files(folder_ / "packed/cifar-10-batches-bin");
  stand_in("tar", "mv '" + (folder_ / "packed/cifar-10-batches-bin").string() + "' \"${@: -1}\"/");
  EXPECT_EQ(run(), 0) << output_;
  EXPECT_FALSE(curl_ran());
  EXPECT_TRUE(said("--data " + data_.string())) << output_;
  EXPECT_TRUE(fs::exists(data_ / "cifar-10-batches-bin/test_batch.bin"));
}

TEST_F(Download, FetchesADamagedArchiveAgain) {
  curl_gives("still wrong");
  write_text_file(data_ / "cifar-10-binary.tar.gz", "damaged");
  EXPECT_EQ(run(), 1);
  EXPECT_TRUE(said("is damaged")) << output_;
  EXPECT_TRUE(curl_ran());
  EXPECT_TRUE(fs::is_empty(data_));
}

TEST_F(Download, DoesNothingWhenAllIsThere) {
  curl_gives("must not be called");
  make_files(data_ / "cifar-10-batches-bin");
  EXPECT_EQ(run(), 0) << output_;
  EXPECT_FALSE(curl_ran());
  EXPECT_TRUE(said("already in")) << output_;
}

}  // namespace
}  // namespace stagecoach
