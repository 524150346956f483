# Draws windows.png, the tiles of chapter 12: gnuplot windows.gp
set terminal pngcairo size 1000,500 font 'Sans,12' background rgb 'white'
set output 'windows.png'
n = 16 # tiles of 64 tokens
set multiplot layout 1,2 margins 0.08,0.98,0.12,0.92 spacing 0.1
set size square
set xrange [0:n]
set yrange [n:0]
set xtics ('0' 0, '256' 4, '512' 8, '768' 12, '1024' 16) scale 0
set ytics ('0' 0, '256' 4, '512' 8, '768' 12, '1024' 16) scale 0
set xlabel 'key'
set ylabel 'query'
set border 15 lc rgb '#404040'
set style fill solid border lc rgb 'white'
set key top right opaque samplen 1.5 width 1

# How far the nearest and the farthest key of tile (i, j) lie behind their query.
near(i, j) = j < i ? 64 * (i - j) - 63 : 0
far(i, j) = 64 * (i - j) + 63
colour(i, j, w) = j > i || near(i, j) >= w ? 0xeeeeee : j == i || far(i, j) >= w ? 0xe69f00 : 0x0072b2

do for [w in '1024 256'] {
    if (w eq '256') { unset key }
    set title w eq '1024' ? 'causal' : 'causal, a window of 256 keys'
    plot sample [t=0:n * n - 1:1] '+' \
             using (int(t) % n + 0.5) : (int(t) / n + 0.5) : (0.5) : (0.5) : \
                   (colour(int(t) / n, int(t) % n, int(w))) \
             with boxxyerror lc rgb variable notitle, \
         NaN with boxes lc rgb '#eeeeee' title 'skipped', \
         NaN with boxes lc rgb '#e69f00' title 'masked inside', \
         NaN with boxes lc rgb '#0072b2' title 'every pair allowed'
}
unset multiplot
