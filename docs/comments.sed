# Comments name flags without backquotes, and Doxygen makes a dash of --flag.
\,//,s/\([^`-]\)--\([a-z]\)/\1\\--\2/g
